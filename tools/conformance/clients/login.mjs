// A login of an official TypeScript client from zero: login.mjs v1|v2 URL CLIENT_ID PORT. It knows the endpoint's address and its
// own client_id, and finds the rest. It writes the address that a person's browser is to go to, waits at the port until the browser
// comes back, lists and calls, has its access token refused and renews it once, logs out, and is let in no more. At the end it
// writes "ok". Anything else fails.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';

const [, , version, address, clientID, port] = process.argv;
const url = new URL(address);

// What the client asks for on its way, in order.
const asked = [];
const watched = async (to, init) => {
  const response = await fetch(to, init);
  const form = init?.body instanceof URLSearchParams ? init.body : undefined;
  asked.push({ path: new URL(to).pathname, status: response.status, form });
  return response;
};

const kept = {};
const opened = [];
const provider = {
  get redirectUrl() { return `http://127.0.0.1:${port}/callback`; },
  get clientMetadata() { return { client_name: 'login', redirect_uris: [this.redirectUrl], grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'], token_endpoint_auth_method: 'none' }; },
  state: () => (kept.state ??= crypto.randomUUID()),
  clientInformation: () => ({ client_id: clientID }),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (found) => { kept.found = found; },
  discoveryState: () => kept.found,
  invalidateCredentials: (which) => { if (which === 'tokens' || which === 'all') delete kept.tokens; },
  redirectToAuthorization: (to) => { opened.push(to); },
};

const { Client, StreamableHTTPClientTransport, UnauthorizedError } =
  version === 'v1'
    ? { ...(await import('@modelcontextprotocol/sdk/client/index.js')), ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')), ...(await import('@modelcontextprotocol/sdk/client/auth.js')) }
    : await import('@modelcontextprotocol/client');
const transport = () => new StreamableHTTPClientTransport(url, { authProvider: provider, fetch: watched });
const client = () => new Client({ name: 'login', version: '1.0.0' }, version === 'v1' ? {} : { versionNegotiation: { mode: { pin: '2026-07-28' } } });
const call = async (c) => {
  const result = await c.callTool({ name: 'test_tool_with_progress', arguments: {} });
  assert.ok(result.content.length > 0 && !result.isError);
};

// Nobody knows it yet: it is told where to log in, and has a browser opened.
const first = transport();
await assert.rejects(client().connect(first), UnauthorizedError);
assert.equal(opened.length, 1);
const at = opened[0];
const resource = at.searchParams.get('resource');
assert.equal(resource, address);
assert.equal(at.searchParams.get('code_challenge_method'), 'S256');
assert.equal(asked[0].status, 401);
const paths = asked.map((a) => a.path);
const own = paths.indexOf('/.well-known/oauth-protected-resource' + url.pathname);
const server = paths.indexOf('/.well-known/oauth-authorization-server');
assert.ok(own > 0 && server > own, 'the way there: ' + paths);

// The browser comes back.
const back = new Promise((resolve) => {
  const local = createServer((request, response) => {
    response.end('You can close this page.');
    local.close();
    resolve(new URL(request.url, provider.redirectUrl));
  }).listen(Number(port), '127.0.0.1', () => console.log('open ' + at));
});
const { searchParams } = await back;
assert.equal(searchParams.get('state'), kept.state);
assert.equal(searchParams.get('iss'), url.origin);
await (version === 'v1' ? first.finishAuth(searchParams.get('code')) : first.finishAuth(searchParams));
const grants = (type) => asked.filter((a) => a.form?.get('grant_type') === type);
assert.deepEqual(grants('authorization_code').map((a) => [a.status, a.form.get('resource'), a.form.has('code_verifier')]), [[200, resource, true]]);

const session = client();
await session.connect(transport());
assert.ok((await session.listTools()).tools.some((t) => t.name === 'test_tool_with_progress'));
await call(session);

// Its access token is not taken any more: it renews it, once, and goes on.
const before = kept.tokens;
kept.tokens = { ...before, access_token: before.access_token.slice(0, -1) + (before.access_token.endsWith('A') ? 'B' : 'A') };
await call(session);
assert.deepEqual(grants('refresh_token').map((a) => [a.status, a.form.get('resource')]), [[200, resource]]);
assert.notEqual(kept.tokens.access_token, before.access_token);
assert.notEqual(kept.tokens.refresh_token, before.refresh_token);

// It logs out: what it has opens nothing, and the only way on is a person again.
const dead = kept.tokens;
const revoked = await fetch(new URL('/oauth/revoke', url), { method: 'POST', body: new URLSearchParams({ token: dead.refresh_token, client_id: clientID }) });
assert.equal(revoked.status, 200);
await assert.rejects(call(session));
assert.deepEqual(grants('refresh_token').map((a) => a.status), [200, 400]);
assert.equal(opened.length, 2);
const last = await fetch(url, { method: 'POST', headers: { Authorization: 'Bearer ' + dead.access_token, 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' }, body: '{"jsonrpc":"2.0","id":1,"method":"ping"}' });
assert.equal(last.status, 401);

console.log('ok');
process.exit(0);
