import java.io.DataInputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatRequest;

/** Groups of every kind at work on a broker: arguments are its host and port. The topics orders and orders-eu are there. */
public class GroupWorkload {
    static final Duration POLL = Duration.ofMillis(200);
    static final int POLLS = 150;

    interface Condition {
        boolean holds();
    }

    public static void main(String[] arguments) throws Exception {
        String host = arguments[0];
        int port = Integer.parseInt(arguments[1]);
        String bootstrap = host + ":" + port;
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            consumerGroups(bootstrap, admin);
            shareGroups(bootstrap, admin);
            streamsGroup(host, port, admin);
        }
    }

    static Map<String, Object> settings(String bootstrap, String group, Object... more) {
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "key.deserializer", bytes, "value.deserializer", bytes));
        for (int at = 0; at < more.length; at += 2) {
            settings.put((String) more[at], more[at + 1]);
        }
        return settings;
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String group, String protocol, Object... more) {
        Map<String, Object> settings = settings(bootstrap, group, more);
        settings.putAll(Map.of("group.protocol", protocol, "enable.auto.commit", false, "auto.offset.reset", "earliest"));
        return new KafkaConsumer<>(settings);
    }

    static void until(String what, Condition condition, Collection<KafkaConsumer<byte[], byte[]>> polled) {
        for (int turn = 0; turn < POLLS; turn++) {
            polled.forEach(consumer -> consumer.poll(POLL));
            if (condition.holds()) {
                return;
            }
        }
        throw new IllegalStateException("in vain: " + what);
    }

    /** A new group with a static member, a rack and a regular expression, joined and left by others; one of both protocols; a classic one. */
    static void consumerGroups(String bootstrap, Admin admin) throws Exception {
        var pinned = consumer(bootstrap, "invoices", "consumer", "group.instance.id", "printer-1", "client.rack", "rack-a",
            "client.id", "printer", "group.remote.assignor", "range");
        pinned.subscribe(new SubscriptionPattern("orders.*"));
        until("assignment", () -> pinned.assignment().size() == 4, List.of(pinned));
        pinned.commitSync(Map.of(new TopicPartition("orders", 0), new OffsetAndMetadata(7, "page \u00e9\u20ac \"7\"")));
        var second = consumer(bootstrap, "invoices", "consumer", "client.id", "printer-two");
        second.subscribe(new SubscriptionPattern("orders.*"));
        until("both have some", () -> !pinned.assignment().isEmpty() && !second.assignment().isEmpty(), List.of(pinned, second));
        second.commitSync(second.assignment().stream().collect(
            java.util.stream.Collectors.toMap(partition -> partition, partition -> new OffsetAndMetadata(3))));
        second.close();
        until("all again", () -> pinned.assignment().size() == 4, List.of(pinned));
        pinned.close();

        var ours = consumer(bootstrap, "both", "consumer", "client.id", "new");
        ours.subscribe(List.of("orders"));
        until("assignment", () -> ours.assignment().size() == 2, List.of(ours));
        var old = consumer(bootstrap, "both", "classic", "client.id", "old");
        old.subscribe(List.of("orders"));
        until("both have some", () -> ours.assignment().size() == 1 && old.assignment().size() == 1, List.of(ours, old));
        old.commitSync(Map.of(old.assignment().iterator().next(), new OffsetAndMetadata(5)));
        ours.close();
        old.close();

        var classic = consumer(bootstrap, "billing", "classic", "client.id", "biller", "client.rack", "rack-b");
        classic.subscribe(List.of("orders"));
        until("assignment", () -> classic.assignment().size() == 2, List.of(classic));
        classic.commitSync(Map.of(new TopicPartition("orders", 1), new OffsetAndMetadata(9)));
        classic.close();

        var gone = consumer(bootstrap, "gone", "consumer");
        gone.subscribe(List.of("orders-eu"));
        until("assignment", () -> gone.assignment().size() == 2, List.of(gone));
        gone.commitSync(Map.of(new TopicPartition("orders-eu", 0), new OffsetAndMetadata(1)));
        gone.close();
        admin.deleteConsumerGroups(List.of("gone")).all().get();
    }

    static KafkaShareConsumer<byte[], byte[]> shareConsumer(String bootstrap, String group) {
        return new KafkaShareConsumer<>(settings(bootstrap, group, "share.acknowledgement.mode", "explicit", "client.id", "worker",
            "client.rack", "rack-a", "max.poll.records", 20));
    }

    /** A group that accepts, releases and rejects records; one whose offsets are set by hand; one that is deleted. */
    static void shareGroups(String bootstrap, Admin admin) throws Exception {
        for (String group : List.of("workers", "reset", "finished")) {
            var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
        }
        share(bootstrap, "workers", "orders", 90);
        share(bootstrap, "reset", "orders", 10);
        share(bootstrap, "finished", "orders-eu", 10);
        admin.alterShareGroupOffsets("reset", Map.of(new TopicPartition("orders", 0), 17L)).all().get();
        admin.deleteShareGroupOffsets("reset", Set.of("orders")).all().get();
        admin.alterShareGroupOffsets("reset", Map.of(new TopicPartition("orders-eu", 1), 4L)).all().get();
        admin.deleteShareGroups(List.of("finished")).all().get();
    }

    /** Take `wanted` records: of seven the second is rejected, the fourth and fifth released, the others accepted. */
    static void share(String bootstrap, String group, String topic, int wanted) {
        try (var worker = shareConsumer(bootstrap, group)) {
            worker.subscribe(List.of(topic));
            int seen = 0;
            for (int turn = 0; turn < POLLS && seen < wanted; turn++) {
                for (ConsumerRecord<byte[], byte[]> record : worker.poll(POLL)) {
                    seen++;
                    long place = record.offset() % 7;
                    boolean again = record.deliveryCount().orElse((short) 1) > 1;
                    worker.acknowledge(record, place == 2 ? AcknowledgeType.REJECT
                        : place == 4 || place == 5 && !again ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                }
                worker.commitSync();
            }
            if (seen < wanted) {
                throw new IllegalStateException(group + " saw " + seen + " records of " + wanted);
            }
        }
    }

    /** Heartbeats of a streams application with two members, of which one leaves. */
    static void streamsGroup(String host, int port, Admin admin) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.GROUP, "totals");
        admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("streams.num.standby.replicas", "1"), AlterConfigOp.OpType.SET)))).all().get();
        try (Socket socket = new Socket(host, port)) {
            Member first = new Member(socket, "member-a", "process-1");
            first.join();
            first.settle();
            Member second = new Member(socket, "member-b", "process-2");
            second.join();
            for (int turn = 0; turn < 6; turn++) {
                first.settle();
                second.settle();
            }
            second.beat(-1, null);
            first.settle();
        }
        admin.alterStreamsGroupOffsets("totals-by-hand", Map.of(new TopicPartition("orders", 0), new OffsetAndMetadata(11))).all().get();
    }

    static class Member {
        final Socket socket;
        final String name;
        final String process;
        int epoch;
        List<StreamsGroupHeartbeatRequestData.TaskIds> active = List.of();
        List<StreamsGroupHeartbeatRequestData.TaskIds> standby = List.of();

        Member(Socket socket, String name, String process) {
            this.socket = socket;
            this.name = name;
            this.process = process;
        }

        void join() throws Exception {
            beat(0, topology());
        }

        void settle() throws Exception {
            for (int turn = 0; turn < 5; turn++) {
                beat(epoch, null);
                Thread.sleep(100);
            }
        }

        void beat(int memberEpoch, StreamsGroupHeartbeatRequestData.Topology topology) throws Exception {
            boolean joins = topology != null;
            var data = new StreamsGroupHeartbeatRequestData().setGroupId("totals").setMemberId(name).setMemberEpoch(memberEpoch)
                .setTopology(topology)
                .setActiveTasks(memberEpoch < 0 ? null : active).setStandbyTasks(memberEpoch < 0 ? null : standby)
                .setWarmupTasks(memberEpoch < 0 ? null : List.of());
            if (joins) {
                data.setRebalanceTimeoutMs(60000).setProcessId(process).setRackId("rack-a")
                    .setUserEndpoint(new StreamsGroupHeartbeatRequestData.Endpoint().setHost("localhost").setPort(65000))
                    .setClientTags(List.of(new StreamsGroupHeartbeatRequestData.KeyValue().setKey("zone").setValue("eu-1")));
            }
            var request = new StreamsGroupHeartbeatRequest(data, (short) 0);
            var header = new RequestHeader(ApiKeys.STREAMS_GROUP_HEARTBEAT, (short) 0, "streams-" + name, 1);
            ByteBuffer bytes = request.serializeWithHeader(header);
            var out = new java.io.DataOutputStream(socket.getOutputStream());
            out.writeInt(bytes.remaining());
            out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
            out.flush();
            var in = new DataInputStream(socket.getInputStream());
            byte[] answer = new byte[in.readInt()];
            in.readFully(answer);
            ByteBuffer buffer = ByteBuffer.wrap(answer);
            ResponseHeader.parse(buffer, header.apiKey().responseHeaderVersion((short) 0));
            var response = new StreamsGroupHeartbeatResponseData(new ByteBufferAccessor(buffer), (short) 0);
            if (response.errorCode() != 0) {
                throw new IllegalStateException(response.toString());
            }
            epoch = response.memberEpoch();
            if (response.activeTasks() != null) {
                active = tasks(response.activeTasks());
            }
            if (response.standbyTasks() != null) {
                standby = tasks(response.standbyTasks());
            }
        }

        static List<StreamsGroupHeartbeatRequestData.TaskIds> tasks(List<StreamsGroupHeartbeatResponseData.TaskIds> given) {
            List<StreamsGroupHeartbeatRequestData.TaskIds> tasks = new ArrayList<>();
            given.forEach(each -> tasks.add(new StreamsGroupHeartbeatRequestData.TaskIds()
                .setSubtopologyId(each.subtopologyId()).setPartitions(each.partitions())));
            return tasks;
        }

        static StreamsGroupHeartbeatRequestData.TopicInfo topic(String name, int partitions) {
            return new StreamsGroupHeartbeatRequestData.TopicInfo().setName(name).setPartitions(partitions).setReplicationFactor((short) 1)
                .setTopicConfigs(List.of(
                    new StreamsGroupHeartbeatRequestData.KeyValue().setKey("cleanup.policy").setValue("compact"),
                    new StreamsGroupHeartbeatRequestData.KeyValue().setKey("segment.bytes").setValue("1048576")));
        }

        static StreamsGroupHeartbeatRequestData.Topology topology() {
            var joined = new StreamsGroupHeartbeatRequestData.CopartitionGroup().setSourceTopics(List.of((short) 0, (short) 1));
            var first = new StreamsGroupHeartbeatRequestData.Subtopology().setSubtopologyId("subtopology-0")
                .setSourceTopics(List.of("orders", "orders-eu"))
                .setStateChangelogTopics(List.of(topic("totals-store-changelog", 0)))
                .setRepartitionSinkTopics(List.of("totals-by-customer-repartition"))
                .setCopartitionGroups(List.of(joined));
            var second = new StreamsGroupHeartbeatRequestData.Subtopology().setSubtopologyId("subtopology-1")
                .setRepartitionSourceTopics(List.of(topic("totals-by-customer-repartition", 2)));
            return new StreamsGroupHeartbeatRequestData.Topology().setEpoch(1).setSubtopologies(List.of(first, second));
        }
    }
}
