// graphile-worker: its documented settings for speed (24 / 500 / 0), or tuned ones.
//
//   node graphile.js drain|latency '{"host": …, "database": …}' COUNT CONCURRENCY LOCAL_QUEUE

const { Logger, makeWorkerUtils, run } = require("graphile-worker");
const { Pool } = require("pg");

const ENQUEUE_BATCH = 10_000;
const PENDING = "SELECT EXISTS (SELECT FROM graphile_worker._private_jobs) AS pending";
const POLL_MILLISECONDS = 5;
const PAUSE_MILLISECONDS = 20;

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const silent = new Logger(() => () => {});

async function drain(pool, utils, count, preset) {
  const specs = (size) => Array.from({ length: size }, () => ({ identifier: "noop", payload: {} }));
  let began = performance.now();
  for (let first = 0; first < count; first += ENQUEUE_BATCH) {
    await utils.addJobs(specs(Math.min(ENQUEUE_BATCH, count - first)));
  }
  const enqueued = performance.now() - began;
  await pool.query("VACUUM ANALYZE");

  let started = 0;
  let cpu;
  let allStarted;
  const waiting = new Promise((resolve) => (allStarted = resolve));
  const noop = async () => {
    if (started === 0) [began, cpu] = [performance.now(), process.cpuUsage()];
    if (++started === count) allStarted();
  };
  const runner = await run({ pgPool: pool, preset, logger: silent, taskList: { noop } });
  await waiting;
  let ended = performance.now();
  while ((await pool.query(PENDING)).rows[0].pending) {
    await sleep(POLL_MILLISECONDS);
    ended = performance.now();
  }
  const used = process.cpuUsage(cpu);
  await runner.stop();
  return {
    "jobs/s": (count / (ended - began)) * 1000,
    "client CPU, µs/job": (used.user + used.system) / count,
    "enqueued/s": (count / enqueued) * 1000,
  };
}

async function latency(pool, utils, count, preset) {
  let startedAt;
  let hasStarted;
  const noop = async () => {
    startedAt = performance.now();
    hasStarted();
  };
  const runner = await run({ pgPool: pool, preset, logger: silent, taskList: { noop } });
  await sleep(1000); // until it listens
  const milliseconds = [];
  for (let sample = 0; sample < count; sample++) {
    const waiting = new Promise((resolve) => (hasStarted = resolve));
    const began = performance.now();
    await utils.addJob("noop", {});
    await waiting;
    milliseconds.push(startedAt - began);
    await sleep(PAUSE_MILLISECONDS);
  }
  await runner.stop();
  milliseconds.sort((one, other) => one - other);
  const percentile = (share) => milliseconds[Math.min(Math.floor(share * count), count - 1)];
  return { "p50, ms": percentile(0.5), "p99, ms": percentile(0.99) };
}

async function main() {
  const [workload, address, count, concurrency, localQueue] = process.argv.slice(2);
  const preset = {
    worker: {
      concurrentJobs: Number(concurrency),
      localQueue: { size: Number(localQueue) },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  };
  const pool = new Pool({ ...JSON.parse(address), max: Number(concurrency) + 1 });
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  const utils = await makeWorkerUtils({ pgPool: pool, logger: silent });
  await utils.migrate();
  const measured = await { drain, latency }[workload](pool, utils, Number(count), preset);
  process.stdout.write(JSON.stringify(measured) + "\n");
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
