// A session of an official TypeScript client with the endpoint: session.mjs v1|v2 URL ASKING_TOOL. v1 is
// @modelcontextprotocol/sdk, with the protocol of 2025-11-25; v2 is @modelcontextprotocol/client, with that of 2026-07-28.
// The token is in TOKEN. It lists, calls with progress, answers an elicitation, is refused a call, and makes one that a person
// approves: it writes that call's address, and goes on when a line comes. At the end it writes "ok". Anything else fails.
import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';

const [, , version, url, asking] = process.argv;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// A person finds the held call at the address, and decides; what is answered here decides nothing.
const seen = [];
const elicit = async ({ params }) => {
  seen.push(params.mode ?? 'form');
  if (params.mode !== 'url') return { action: 'accept', content: { username: 'ada', name: 'ada' } };
  console.log('held ' + params.url);
  assert.equal((await lines.next()).value, 'decided');
  return { action: 'accept' };
};

const about = { name: 'session', version: '1.0.0' };
const capabilities = { elicitation: { form: {}, url: {} } };
const requestInit = { headers: { Authorization: 'Bearer ' + process.env.TOKEN } };

let client;
if (version === 'v1') {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const { ElicitRequestSchema } = await import('@modelcontextprotocol/sdk/types.js');
  client = new Client(about, { capabilities });
  client.setRequestHandler(ElicitRequestSchema, elicit);
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
} else {
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  client = new Client(about, { capabilities, versionNegotiation: { mode: { pin: '2026-07-28' } } });
  client.setRequestHandler('elicitation/create', elicit);
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
}
const call = (name, args, options) =>
  version === 'v1' ? client.callTool({ name, arguments: args }, undefined, options) : client.callTool({ name, arguments: args }, options);
const text = (result) => result.content.map((c) => c.text).join('\n');

// What is listed is what is granted, and nothing else.
const { tools } = await client.listTools();
assert.deepEqual(tools.map((t) => t.name).sort(), [asking, 'test_simple_text', 'test_tool_with_progress'].sort());

const told = [];
await call('test_tool_with_progress', {}, { onprogress: (p) => told.push(p.progress) });
assert.ok(told.length >= 2, 'progress: ' + told);
assert.deepEqual(told, told.toSorted((a, b) => a - b));

const asked = await call(asking, { message: 'who are you?' });
assert.match(text(asked), /ada/);
assert.deepEqual(seen, ['form']);

await assert.rejects(call('test_image_content', {}), (e) => e.code === -32050 && e.data.code === 'denied' && e.data.call.startsWith('call_'));

const approved = await call('test_simple_text', {}, { timeout: 60_000 });
assert.match(text(approved), /simple text response/);
assert.deepEqual(seen, ['form', 'url']);

await client.close();
console.log('ok');
process.exit(0); // the lines are still read
