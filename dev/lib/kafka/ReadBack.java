// Reads a topic from its beginning to its end with Kafka's own Java client and writes each record as a line of JSON: what another
// client sees. Keys, values and header values are hexadecimal; long ones are told by their SHA-256.
//
//   java -cp 'LIBRARIES/*' ReadBack.java BOOTSTRAP TOPIC

import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

class ReadBack {
    static final int SHOWN_BYTES_MAX = 4096;

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments[0],
                "isolation.level", "read_committed",
                "max.partition.fetch.bytes", 16 << 20);
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(arguments[1]).stream()
                    .map(partition -> new TopicPartition(partition.topic(), partition.partition()))
                    .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(line(record));
                }
            }
        }
    }

    static String line(ConsumerRecord<byte[], byte[]> record) throws Exception {
        var headers = new StringBuilder();
        for (Header header : record.headers()) {
            if (headers.length() > 0) {
                headers.append(',');
            }
            headers.append("[\"").append(HexFormat.of().formatHex(header.key().getBytes("UTF-8"))).append("\",");
            headers.append(bytes(header.value())).append(']');
        }
        return "{\"partition\":" + record.partition() + ",\"offset\":" + record.offset() + ",\"timestamp_ms\":"
                + record.timestamp() + ",\"key\":" + bytes(record.key()) + ",\"value\":" + bytes(record.value())
                + ",\"headers\":[" + headers + "]}";
    }

    static String bytes(byte[] bytes) throws Exception {
        if (bytes == null) {
            return "null";
        }
        if (bytes.length <= SHOWN_BYTES_MAX) {
            return '"' + HexFormat.of().formatHex(bytes) + '"';
        }
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes);
        return "\"sha256:" + HexFormat.of().formatHex(digest) + '"';
    }
}
