import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads topics without a group, or as named members of groups that live across requests. */
final class Consumers {
    private static final long READ_LIMIT_MS = 50_000;
    private static final Map<String, KafkaConsumer<byte[], byte[]>> OPEN =
        new ConcurrentHashMap<>();

    static JsonNode handle(String command, JsonNode request) {
        switch (command) {
            case "consume": return consume(request);
            case "openMember": return openMember(request);
            case "readAsMember": return readAsMember(request);
            case "closeMember": return closeMember(request);
            default: return null;
        }
    }

    /** Joins a group; there is no assignment before the first read. */
    private static JsonNode openMember(JsonNode request) {
        KafkaConsumer<byte[], byte[]> member = consumer(request);
        member.subscribe(List.of(request.get("topic").asText()));
        OPEN.put(request.get("name").asText(), member);
        return InteropClient.JSON.createObjectNode();
    }

    /** Reads exactly `count` records (0: until there is an assignment) and commits behind them. */
    private static JsonNode readAsMember(JsonNode request) {
        KafkaConsumer<byte[], byte[]> member = OPEN.get(request.get("name").asText());
        int count = request.get("count").asInt();
        ArrayNode records = InteropClient.JSON.createArrayNode();
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        long deadline = System.currentTimeMillis() + READ_LIMIT_MS;
        while (records.size() < count || member.assignment().isEmpty()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(records.size() + " of " + count + " records");
            }
            Set<TopicPartition> tooFar = new HashSet<>();
            for (ConsumerRecord<byte[], byte[]> record : member.poll(Duration.ofMillis(100))) {
                TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                if (records.size() < count) {
                    records.add(fields(record));
                    long after = record.offset() + 1;
                    next.put(partition, new OffsetAndMetadata(after, record.leaderEpoch(), ""));
                } else if (tooFar.add(partition)) {
                    member.seek(partition, record.offset());
                }
            }
        }
        if (!next.isEmpty()) member.commitSync(next);
        ObjectNode answer = InteropClient.JSON.createObjectNode();
        answer.set("records", records);
        return answer;
    }

    private static JsonNode closeMember(JsonNode request) {
        OPEN.remove(request.get("name").asText()).close();
        return InteropClient.JSON.createObjectNode();
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode request) {
        Properties properties = InteropClient.properties(request);
        properties.put("enable.auto.commit", "false");
        properties.putIfAbsent("auto.offset.reset", "none");
        properties.putIfAbsent("fetch.max.wait.ms", "100");
        JsonNode isolation = request.get("isolation");
        if (isolation != null) properties.put("isolation.level", isolation.asText());
        return new KafkaConsumer<>(
            properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<TopicPartition> partitions(KafkaConsumer<?, ?> consumer, String topic) {
        return consumer.partitionsFor(topic).stream()
            .map(info -> new TopicPartition(topic, info.partition()))
            .collect(Collectors.toList());
    }

    /** Every record up to the end that each partition had at the start of the call. */
    private static JsonNode consume(JsonNode request) {
        ArrayNode records = InteropClient.JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            List<TopicPartition> all = partitions(consumer, request.get("topic").asText());
            Map<TopicPartition, Long> begin = consumer.beginningOffsets(all);
            Map<TopicPartition, Long> end = consumer.endOffsets(all);
            consumer.assign(all);
            for (TopicPartition partition : all) {
                JsonNode from = request.get("from").get(String.valueOf(partition.partition()));
                consumer.seek(partition, from == null ? begin.get(partition) : from.asLong());
            }
            Set<TopicPartition> left = new HashSet<>(all);
            long deadline = System.currentTimeMillis() + READ_LIMIT_MS;
            while (true) {
                // Positions pass over gaps and control batches, so they tell where the end is.
                left.removeIf(partition -> consumer.position(partition) >= end.get(partition));
                if (left.isEmpty()) break;
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("not at the end: " + left);
                }
                var polled = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    int partition = record.partition();
                    long limit = end.get(new TopicPartition(record.topic(), partition));
                    if (record.offset() < limit) records.add(fields(record));
                }
            }
        }
        ObjectNode answer = InteropClient.JSON.createObjectNode();
        answer.set("records", records);
        return answer;
    }

    private static ArrayNode fields(ConsumerRecord<byte[], byte[]> record) {
        ArrayNode fields = InteropClient.JSON.createArrayNode();
        fields.add(record.partition());
        fields.add(record.offset());
        fields.add(record.timestamp());
        fields.add(record.timestampType().name());
        fields.add(record.leaderEpoch().orElse(-1));
        fields.add(InteropClient.base64(record.key()));
        fields.add(InteropClient.base64(record.value()));
        ArrayNode headers = fields.addArray();
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(InteropClient.base64(header.value()));
        }
        return fields;
    }

    private Consumers() {}
}
