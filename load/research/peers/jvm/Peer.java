import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtSession;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.GenericRecordBuilder;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/** Kafka Streams with ONNX Runtime: a record at a time, as its API has it, at least once. */
public final class Peer {
  private static final int HEADER_BYTES = 10; // Avro single-object encoding: marker and fingerprint
  private static final long SLO_US = 100_000;

  private final Schema querySchema;
  private final Schema predictionSchema;
  private final Schema outputSchema;
  private final GenericData.EnumSymbol complete;
  private final GenericData.EnumSymbol ok;
  private final GenericDatumReader<GenericRecord> reader;
  private final GenericDatumWriter<GenericRecord> writer;
  private final byte[] header;
  private final String model;
  private final OrtEnvironment environment = OrtEnvironment.getEnvironment();
  private final OrtSession session;
  private final String input;
  private final String label; // the first of its outputs; the other has probabilities

  private Peer(Properties given) throws IOException, OrtException {
    querySchema = new Schema.Parser().parse(new File(given.getProperty("query")));
    predictionSchema = new Schema.Parser().parse(new File(given.getProperty("prediction")));
    outputSchema = predictionSchema.getField("outputs").schema().getElementType();
    complete = new GenericData.EnumSymbol(predictionSchema.getField("status").schema(), "complete");
    ok = new GenericData.EnumSymbol(outputSchema.getField("outcome").schema(), "ok");
    reader = new GenericDatumReader<>(querySchema);
    writer = new GenericDatumWriter<>(predictionSchema);
    header = java.util.HexFormat.of().parseHex(given.getProperty("header"));
    model = given.getProperty("model");
    OrtSession.SessionOptions options = new OrtSession.SessionOptions();
    options.setIntraOpNumThreads(1);
    options.setInterOpNumThreads(1);
    session = environment.createSession(given.getProperty("onnx"), options);
    input = session.getInputNames().iterator().next();
    label = session.getOutputNames().iterator().next();
  }

  private byte[] answer(byte[] value) {
    try {
      BinaryDecoder decoder =
          DecoderFactory.get().binaryDecoder(value, HEADER_BYTES, value.length - HEADER_BYTES, null);
      GenericRecord query = reader.read(null, decoder);
      return encode(query, predict((GenericRecord) query.get("input")));
    } catch (IOException | OrtException error) {
      throw new IllegalStateException(error);
    }
  }

  private long predict(GenericRecord tensor) throws OrtException {
    FloatBuffer row = ((ByteBuffer) tensor.get("data")).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
    float[] numbers = new float[row.remaining()];
    row.get(numbers);
    long[] shape = {1, numbers.length};
    try (OnnxTensor rows = OnnxTensor.createTensor(environment, FloatBuffer.wrap(numbers), shape);
        OrtSession.Result result = session.run(Map.of(input, rows), Set.of(label))) {
      return ((long[]) result.get(0).getValue())[0];
    }
  }

  private byte[] encode(GenericRecord query, long label) throws IOException {
    long nowUs = System.currentTimeMillis() * 1_000;
    GenericRecord output = new GenericRecordBuilder(outputSchema)
        .set("model", model).set("version", "1").set("outcome", ok).set("answer", label).build();
    GenericRecord prediction = new GenericRecordBuilder(predictionSchema)
        .set("query_id", query.get("query_id")).set("application", query.get("application"))
        .set("context", query.get("context")).set("status", complete).set("answer", label)
        .set("confidence", 1.0).set("outputs", List.of(output)).set("sent_us", query.get("sent_us"))
        .set("received_us", nowUs).set("deadline_us", (Long) query.get("sent_us") + SLO_US)
        .set("answered_us", nowUs).build();
    ByteArrayOutputStream out = new ByteArrayOutputStream(256);
    out.write(header);
    BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(out, null);
    writer.write(prediction, encoder);
    encoder.flush();
    return out.toByteArray();
  }

  public static void main(String[] arguments) throws Exception {
    Properties given = new Properties();
    try (var file = java.nio.file.Files.newBufferedReader(java.nio.file.Path.of(arguments[0]))) {
      given.load(file);
    }
    Peer peer = new Peer(given);
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(given.getProperty("source"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
        .mapValues(peer::answer)
        .to(given.getProperty("sink"), Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
    KafkaStreams streams = new KafkaStreams(builder.build(), given);
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
  }
}
