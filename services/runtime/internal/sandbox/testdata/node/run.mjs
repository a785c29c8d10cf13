// Reads a JSON array of programs and writes what each gives, as the worker's test does. The time zone is the worker's.
import { readFileSync } from 'node:fs';
const AsyncFunction = (async () => {}).constructor;
process.on('unhandledRejection', () => {});
const results = [];
setInterval(() => {}, 1e6); // some timers of node's do not keep it alive
for (const source of JSON.parse(readFileSync(0, 'utf8'))) {
  try {
    results.push({ value: await new AsyncFunction(source)() });
  } catch (e) {
    results.push({ error: e instanceof Error ? e.name : 'thrown' });
  }
}
process.stdout.write(JSON.stringify({ version: process.version, results }), () => process.exit(0));
