import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.serialization.BytesApiMessageSerde;
import org.apache.kafka.server.log.remote.metadata.storage.generated.MetadataJsonConverters;
import org.apache.kafka.server.log.remote.metadata.storage.generated.MetadataRecordType;

/**
 * A segment of records that Kafka's own serializers write. Arguments: group, share or remote, a file with a JSON array, the log.
 * Each element has type, version, key and value as kafka-dump-log prints them, or keyBytes and valueBytes in hex.
 */
public class WriteRecords {
    public static void main(String[] arguments) throws Exception {
        boolean ofGroups = arguments[0].equals("group");
        CoordinatorRecordSerde serde = ofGroups ? new GroupCoordinatorRecordSerde() : new ShareCoordinatorRecordSerde();
        List<SimpleRecord> records = new ArrayList<>();
        for (JsonNode each : new ObjectMapper().readTree(Files.readString(Path.of(arguments[1])))) {
            boolean ofRemoteLog = arguments[0].equals("remote") && each.has("type");
            records.add(ofRemoteLog ? ofRemoteLog(each) : each.has("type") ? declared(each, serde, ofGroups) : raw(each));
        }
        MemoryRecords batch = MemoryRecords.withRecords(Compression.NONE, records.toArray(new SimpleRecord[0]));
        try (FileChannel log = FileChannel.open(Path.of(arguments[2]), StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            batch.writeFullyTo(log);
        }
    }

    static SimpleRecord declared(JsonNode each, CoordinatorRecordSerde serde, boolean ofGroups) {
        short type = (short) each.get("type").asInt();
        short version = (short) each.path("version").asInt();
        ApiMessage key = ofGroups
            ? org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters.readRecordKeyFromJson(each.get("key"), type)
            : org.apache.kafka.coordinator.share.generated.CoordinatorRecordJsonConverters.readRecordKeyFromJson(each.get("key"), type);
        JsonNode given = each.path("value");
        if (given.isMissingNode() || given.isNull()) {
            return new SimpleRecord(1_700_000_000_000L, serde.serializeKey(CoordinatorRecord.tombstone(key)), null);
        }
        ApiMessage value = ofGroups
            ? org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters.readRecordValueFromJson(given, type, version)
            : org.apache.kafka.coordinator.share.generated.CoordinatorRecordJsonConverters.readRecordValueFromJson(given, type, version);
        CoordinatorRecord record = CoordinatorRecord.record(key, new ApiMessageAndVersion(value, version));
        return new SimpleRecord(1_700_000_000_000L, serde.serializeKey(record), serde.serializeValue(record));
    }

    static SimpleRecord ofRemoteLog(JsonNode each) {
        ApiMessage value = MetadataJsonConverters.readJson(each.get("value"), (short) each.get("type").asInt(), (short) 0);
        BytesApiMessageSerde serde = new BytesApiMessageSerde() {
            @Override
            public ApiMessage apiMessageFor(short apiKey) {
                return MetadataRecordType.fromId(apiKey).newMetadataRecord();
            }
        };
        return new SimpleRecord(1_700_000_000_000L, null, serde.serialize(new ApiMessageAndVersion(value, (short) 0)));
    }

    static SimpleRecord raw(JsonNode each) {
        return new SimpleRecord(1_700_000_000_000L, bytes(each.get("keyBytes")), bytes(each.get("valueBytes")));
    }

    static byte[] bytes(JsonNode hex) {
        return hex == null || hex.isNull() ? null : HexFormat.of().parseHex(hex.asText());
    }
}
