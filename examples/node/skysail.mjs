// A client of Skysail in Node, for a web server: one connection, any number of queries under way.
//
//     const client = await connect({ brokers: ["127.0.0.1:9092"] });
//     const prediction = await client.predict("digits", [1, 2]);
//     await client.feedback(prediction, 1);
//
// Every process reads all predictions and takes those that it has asked for: an answer counts by id and token.
import { randomBytes, randomUUID } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import avro from "avsc";
import { Kafka, Partitioners, logLevel } from "kafkajs";

// CRC-64-AVRO, as the Avro specification has it under "Schema Fingerprints".
const EMPTY = 0xc15d213aa4d7a795n;
const TABLE = Array.from({ length: 256 }, (_, byte) => {
  let found = BigInt(byte);
  for (let bit = 0; bit < 8; bit++) found = (found >> 1n) ^ (EMPTY & -(found & 1n));
  return BigInt.asUintN(64, found);
});

function fingerprint(text) {
  let found = EMPTY;
  for (const byte of Buffer.from(text)) found = (found >> 8n) ^ TABLE[Number((found ^ BigInt(byte)) & 0xffn)];
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(found);
  return bytes;
}

// A record's schema: `encode` and `decode` with the framing of Avro's single objects.
export function record(folder, name) {
  const path = `${folder}/${name}.avsc`;
  if (!existsSync(path)) throw new Error(`no ${path}: copy Skysail's folder schemas, and tell connect where: {schemas}`);
  const type = avro.Type.forSchema(JSON.parse(readFileSync(path)), { wrapUnions: true });
  const head = Buffer.concat([Buffer.from([0xc3, 0x01]), fingerprint(JSON.stringify(type.schema()))]);
  return {
    head,
    encode: (value) => Buffer.concat([head, type.toBuffer(value)]),
    decode: (value) => (value.subarray(0, 10).equals(head) ? type.fromBuffer(value.subarray(10)) : null),
  };
}

// Numbers as the tensor that a model of numbers takes; texts, and rows of named columns as JSON, are {string: ...}.
function input(row) {
  if (typeof row === "string") return { string: row };
  if (!Array.isArray(row)) return { string: JSON.stringify(row) };
  const data = Buffer.from(Float32Array.from(row).buffer);
  return { "skysail.Tensor": { dtype: "float32", shape: [row.length], data } };
}

function label(value) {
  if (typeof value === "string") return { string: value };
  return Number.isInteger(value) ? { long: value } : { double: value };
}

// A union's value without its branch: 3, not {long: 3}. A tensor stays {dtype, shape, data}.
function plain(value) {
  return value === null ? null : Object.values(value)[0];
}

const SCHEMAS = fileURLToPath(new URL("../../schemas", import.meta.url));

// `kafka` has more of kafkajs' settings, such as `ssl` and `sasl`; `schemas` is where Skysail's .avsc files are.
export async function connect({ brokers, prefix = "skysail", schemas = SCHEMAS, kafka: more = {} }) {
  const kafka = new Kafka({ clientId: "skysail-node", brokers, logLevel: logLevel.ERROR, ...more });
  const [Query, Prediction, Feedback] = ["Query", "Prediction", "Feedback"].map((name) => record(schemas, name));
  const topic = `${prefix}.predictions`;
  const waiting = new Map();

  // kafkajs reads in groups alone: one of its own for each process, from where the log ends now.
  const admin = kafka.admin();
  await admin.connect();
  let ends;
  try {
    ends = await admin.fetchTopicOffsets(topic);
  } catch (fault) {
    if ((fault.cause ?? fault).type !== "UNKNOWN_TOPIC_OR_PARTITION") throw fault;
    throw new Error(`there is no topic ${topic}: does Skysail run at ${brokers}, and is its prefix ${prefix}?`);
  } finally {
    await admin.disconnect();
  }
  const consumer = kafka.consumer({ groupId: `${prefix}.node-${randomUUID()}`, maxWaitTimeInMs: 100 });
  const joined = new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve));
  await consumer.connect();
  await consumer.subscribe({ topic });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      const prediction = Prediction.decode(message.value);
      const asked = prediction && waiting.get(prediction.query_id);
      if (!asked || asked.token !== prediction.reply_token) return;
      waiting.delete(prediction.query_id);
      clearTimeout(asked.timer);
      const { reason, answer, context } = prediction;
      asked.resolve({ ...prediction, reason: plain(reason), answer: plain(answer), context: plain(context) });
    },
  });
  for (const { partition, offset } of ends) consumer.seek({ topic, partition, offset });
  await joined;

  // kafkajs' default partitioner is that of Kafka's Java client: queries and feedback with one key meet.
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();

  return {
    async predict(application, row, { context = null, timeoutMs = 10_000, id = randomUUID() } = {}) {
      const token = randomBytes(8).toString("hex");
      const answer = new Promise((resolve, reject) => {
        const late = () => waiting.delete(id) && reject(new Error(`no prediction for ${id} within ${timeoutMs} ms`));
        waiting.set(id, { token, resolve, timer: setTimeout(late, timeoutMs) });
      });
      const query = {
        query_id: id, application, input: input(row), context: context && { string: context }, sent_us: Date.now() * 1000,
        slo_ms: null, priority: 0, features: [], version: null, reply_token: token, candidates: null, top: 1,
      };
      const messages = [{ key: context ?? id, value: Query.encode(query) }];
      await producer.send({ topic: `${prefix}.queries`, acks: -1, messages });
      return answer;
    },

    async feedback(prediction, truth) {
      const value = Feedback.encode({
        query_id: prediction.query_id, label: label(truth), loss: null, sent_us: Date.now() * 1000,
      });
      const key = prediction.context ?? prediction.query_id;
      await producer.send({ topic: `${prefix}.feedback`, acks: -1, messages: [{ key, value }] });
    },

    async close() {
      await Promise.all([producer.disconnect(), consumer.disconnect()]);
    },
  };
}
