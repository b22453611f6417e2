// Asks one query, prints its answer as JSON, and reports the true label if one is given.
//
//     npm install
//     node ask.mjs digits '[1, 2]' 1
import { connect } from "./skysail.mjs";

const [application, row, truth] = process.argv.slice(2);
if (row === undefined) {
  console.error("usage: node ask.mjs APPLICATION ROW [LABEL], a row such as '[1, 2]'");
  process.exit(2);
}
const { BOOTSTRAP = "127.0.0.1:9092", PREFIX = "skysail", CONTEXT, SCHEMAS, TIMEOUT_MS = "10000" } = process.env;
const client = await connect({ brokers: BOOTSTRAP.split(","), prefix: PREFIX, schemas: SCHEMAS });
try {
  const options = { context: CONTEXT ?? null, timeoutMs: Number(TIMEOUT_MS) };
  const prediction = await client.predict(application, JSON.parse(row), options);
  if (truth !== undefined) await client.feedback(prediction, JSON.parse(truth));
  const { query_id, status, reason, message, answer, confidence } = prediction;
  console.log(JSON.stringify({ query_id, status, reason, message, answer, confidence }));
} finally {
  await client.close();
}
