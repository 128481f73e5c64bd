import java.nio.file.Files;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/** A member of a streams group that reads records of one topic, commits and leaves: BOOTSTRAP GROUP TOPIC COUNT. */
public final class StreamsGroup {
    public static void main(String[] arguments) throws Exception {
        CountDownLatch left = new CountDownLatch(Integer.parseInt(arguments[3]));
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put("group.protocol", "streams");
        settings.put("auto.offset.reset", "earliest");
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("streams-group").toString());
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2]).foreach((key, value) -> left.countDown());
        boolean readAll;
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            readAll = left.await(40, TimeUnit.SECONDS);
        }
        System.exit(readAll ? 0 : 1);
    }
}
