import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.coordinator.share.PersisterStateBatchCombiner;
import org.apache.kafka.server.share.persister.PersisterStateBatch;

/** What a share coordinator makes of state batches. Argument: a file with a JSON array of {before, after, start}; prints the answers. */
public class MergeStates {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        ArrayNode answers = json.createArrayNode();
        for (JsonNode each : json.readTree(Files.readString(Path.of(arguments[0])))) {
            var combiner = new PersisterStateBatchCombiner(
                batches(each.get("before")), batches(each.get("after")), each.get("start").asLong());
            ArrayNode answer = answers.addArray();
            for (PersisterStateBatch batch : combiner.combineStateBatches()) {
                answer.addArray().add(batch.firstOffset()).add(batch.lastOffset()).add(batch.deliveryState()).add(batch.deliveryCount());
            }
        }
        System.out.println(answers);
    }

    static List<PersisterStateBatch> batches(JsonNode given) {
        List<PersisterStateBatch> batches = new ArrayList<>();
        for (JsonNode each : given) {
            batches.add(new PersisterStateBatch(
                each.get(0).asLong(), each.get(1).asLong(), (byte) each.get(2).asInt(), (short) each.get(3).asInt()));
        }
        return batches;
    }
}
