import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;

/** Administration; one Admin per bootstrap address is kept for the life of the process. */
final class Admins {
    private static final Map<String, Admin> OPEN = new ConcurrentHashMap<>();

    static JsonNode handle(String command, JsonNode request) throws Exception {
        switch (command) {
            case "createTopic": return createTopic(request);
            case "deleteTopic": return deleteTopic(request);
            case "createPartitions": return createPartitions(request);
            case "deleteRecords": return deleteRecords(request);
            case "describeConfigs": return describeConfigs(request);
            case "alterConfigs": return alterConfigs(request);
            case "offsets": return offsets(request);
            case "describeTopic": return describeTopic(request);
            case "reassign": return reassign(request);
            case "electPreferredLeader": return electPreferredLeader(request);
            case "listGroups": return listGroups(request);
            case "commitOffsets": return commitOffsets(request);
            case "groupOffsets": return groupOffsets(request);
            default: return null;
        }
    }

    static Admin admin(JsonNode request) {
        return OPEN.computeIfAbsent(request.get("bootstrap").asText(), bootstrap ->
            Admin.create(Map.<String, Object>of(
                "bootstrap.servers", bootstrap,
                "request.timeout.ms", "10000",
                "default.api.timeout.ms", "20000",
                "reconnect.backoff.max.ms", "500")));
    }

    private static ObjectNode none() {
        return InteropClient.JSON.createObjectNode();
    }

    private static String topic(JsonNode request) {
        return request.get("topic").asText();
    }

    private static List<Integer> integers(JsonNode array) {
        List<Integer> result = new ArrayList<>();
        array.forEach(each -> result.add(each.asInt()));
        return result;
    }

    private static JsonNode createTopic(JsonNode request) throws Exception {
        NewTopic topic;
        JsonNode assignments = request.get("assignments");
        if (assignments.isNull()) {
            topic = new NewTopic(
                topic(request), Optional.of(request.get("partitions").asInt()), Optional.empty());
        } else {
            Map<Integer, List<Integer>> replicas = new HashMap<>();
            assignments.fields().forEachRemaining(
                e -> replicas.put(Integer.valueOf(e.getKey()), integers(e.getValue())));
            topic = new NewTopic(topic(request), replicas);
        }
        Map<String, String> configs = new HashMap<>();
        request.get("configs").fields()
            .forEachRemaining(e -> configs.put(e.getKey(), e.getValue().asText()));
        Admin admin = admin(request);
        admin.createTopics(List.of(topic.configs(configs))).all().get();
        awaitLeaders(admin, topic(request));
        return none();
    }

    /** A new topic is not usable until its brokers have heard of it. */
    private static void awaitLeaders(Admin admin, String name) throws Exception {
        for (int attempt = 0; attempt < 200; attempt++) {
            try {
                TopicDescription topic = describe(admin, name);
                if (topic.partitions().stream().allMatch(p -> p.leader() != null)) return;
            } catch (java.util.concurrent.ExecutionException unknownYet) {
                if (attempt == 199) throw unknownYet;
            }
            Thread.sleep(25);
        }
        throw new IllegalStateException(name + " has partitions without a leader");
    }

    private static JsonNode deleteTopic(JsonNode request) throws Exception {
        admin(request).deleteTopics(Set.of(topic(request))).all().get();
        return none();
    }

    private static JsonNode createPartitions(JsonNode request) throws Exception {
        NewPartitions partitions = NewPartitions.increaseTo(request.get("count").asInt());
        admin(request).createPartitions(Map.of(topic(request), partitions)).all().get();
        return none();
    }

    private static JsonNode deleteRecords(JsonNode request) throws Exception {
        Map<TopicPartition, RecordsToDelete> before = new HashMap<>();
        request.get("before").fields().forEachRemaining(e -> before.put(
            new TopicPartition(topic(request), Integer.parseInt(e.getKey())),
            RecordsToDelete.beforeOffset(e.getValue().asLong())));
        ObjectNode answer = none();
        for (var entry : admin(request).deleteRecords(before).lowWatermarks().entrySet()) {
            long lowWatermark = entry.getValue().get().lowWatermark();
            answer.put(String.valueOf(entry.getKey().partition()), lowWatermark);
        }
        return answer;
    }

    private static ConfigResource resource(JsonNode request) {
        ConfigResource.Type type = ConfigResource.Type.valueOf(request.get("type").asText());
        return new ConfigResource(type, request.get("name").asText());
    }

    private static JsonNode describeConfigs(JsonNode request) throws Exception {
        ConfigResource resource = resource(request);
        ObjectNode answer = none();
        Config config = admin(request).describeConfigs(List.of(resource)).all().get().get(resource);
        for (ConfigEntry entry : config.entries()) {
            boolean overridden = entry.source().name().startsWith("DYNAMIC");
            if (overridden) answer.put(entry.name(), entry.value());
        }
        return answer;
    }

    private static JsonNode alterConfigs(JsonNode request) throws Exception {
        Collection<AlterConfigOp> operations = new ArrayList<>();
        request.get("configs").fields().forEachRemaining(e -> {
            boolean delete = e.getValue().isNull();
            operations.add(new AlterConfigOp(
                new ConfigEntry(e.getKey(), delete ? "" : e.getValue().asText()),
                delete ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET));
        });
        admin(request).incrementalAlterConfigs(Map.of(resource(request), operations)).all().get();
        return none();
    }

    private static TopicDescription describe(Admin admin, String topic) throws Exception {
        return admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic);
    }

    private static Map<TopicPartition, ListOffsetsResultInfo> list(
            Admin admin, TopicDescription topic, OffsetSpec spec, IsolationLevel isolation)
            throws Exception {
        Map<TopicPartition, OffsetSpec> query = new HashMap<>();
        topic.partitions().forEach(
            p -> query.put(new TopicPartition(topic.name(), p.partition()), spec));
        return admin.listOffsets(query, new ListOffsetsOptions(isolation)).all().get();
    }

    private static JsonNode offsets(JsonNode request) throws Exception {
        Admin admin = admin(request);
        TopicDescription topic = describe(admin, topic(request));
        var earliest = list(admin, topic, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED);
        var latest = list(admin, topic, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED);
        var stable = list(admin, topic, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED);
        ObjectNode answer = none();
        earliest.forEach((partition, info) -> answer
            .putObject(String.valueOf(partition.partition()))
            .put("earliest", info.offset())
            .put("latest", latest.get(partition).offset())
            .put("lastStable", stable.get(partition).offset()));
        return answer;
    }

    private static JsonNode describeTopic(JsonNode request) throws Exception {
        TopicDescription topic = describe(admin(request), topic(request));
        ObjectNode answer = none().put("topicId", topic.topicId().toString());
        ArrayNode partitions = answer.putArray("partitions");
        for (TopicPartitionInfo info : topic.partitions()) {
            ObjectNode partition = partitions.addObject();
            partition.put("partition", info.partition());
            partition.put("leader", info.leader() == null ? -1 : info.leader().id());
            ArrayNode replicas = partition.putArray("replicas");
            info.replicas().forEach(node -> replicas.add(node.id()));
            ArrayNode isr = partition.putArray("isr");
            info.isr().forEach(node -> isr.add(node.id()));
        }
        return answer;
    }

    private static JsonNode reassign(JsonNode request) throws Exception {
        Admin admin = admin(request);
        Map<TopicPartition, Optional<NewPartitionReassignment>> moves = new HashMap<>();
        request.get("replicas").fields().forEachRemaining(e -> moves.put(
            new TopicPartition(topic(request), Integer.parseInt(e.getKey())),
            Optional.of(new NewPartitionReassignment(integers(e.getValue())))));
        admin.alterPartitionReassignments(moves).all().get();
        while (!admin.listPartitionReassignments(moves.keySet()).reassignments().get().isEmpty()) {
            Thread.sleep(20);
        }
        return none();
    }

    private static JsonNode electPreferredLeader(JsonNode request) throws Exception {
        TopicPartition partition =
            new TopicPartition(topic(request), request.get("partition").asInt());
        admin(request).electLeaders(ElectionType.PREFERRED, Set.of(partition)).all().get();
        return none();
    }

    private static JsonNode listGroups(JsonNode request) throws Exception {
        ArrayNode answer = InteropClient.JSON.createArrayNode();
        admin(request).listGroups().all().get().forEach(group -> answer.addObject()
            .put("group", group.groupId())
            .put("type", group.type().map(Object::toString).orElse(""))
            .put("state", group.groupState().map(Object::toString).orElse("")));
        return answer;
    }

    private static JsonNode commitOffsets(JsonNode request) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        request.get("offsets").fields().forEachRemaining(e -> offsets.put(
            new TopicPartition(topic(request), Integer.parseInt(e.getKey())),
            new OffsetAndMetadata(e.getValue().asLong())));
        String group = request.get("group").asText();
        admin(request).alterConsumerGroupOffsets(group, offsets).all().get();
        return none();
    }

    private static JsonNode groupOffsets(JsonNode request) throws Exception {
        String group = request.get("group").asText();
        ObjectNode answer = none();
        admin(request).listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            .forEach((partition, offset) -> {
                if (offset != null) answer.put(partition.toString(), offset.offset());
            });
        return answer;
    }

    private Admins() {}
}
