// Measures node's vm module in forked processes, or isolated-vm, as house.go measures the runtime's pool. It is asked
// by its one argument and answers with the rows' values.
'use strict';
const { fork } = require('node:child_process');
const fs = require('node:fs');

// The forked process: a fresh context per script; tools are messages to the parent.
const child = () => {
  const vm = require('node:vm');
  const open = new Map();
  let last = 0;
  process.on('message', async (m) => {
    if (m.reply) return open.get(m.reply)(m.value);
    const call = (args) => new Promise((resolve) => {
      open.set(++last, resolve);
      process.send({ call: last, args });
    });
    const context = vm.createContext({ tools: { a: { b: call } }, console: { log() {} } });
    const value = await vm.runInContext('(async () => {' + m.run + '\n})()', context);
    process.send({ done: JSON.stringify(value) });
  });
  process.send({ ready: true });
};

const forked = () => new Promise((resolve, reject) => {
  const p = fork(__filename, ['child'], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
  let done;
  p.once('error', reject);
  p.on('message', (m) => {
    if (m.ready) resolve({ pid: p.pid, run: (source) => new Promise((r) => { done = r; p.send({ run: source }); }),
      close: () => new Promise((r) => { p.once('exit', r); p.kill('SIGKILL'); }) });
    else if (m.call) p.send({ reply: m.call, value: m.args });
    else done(m.done);
  });
});

const isolate = async () => {
  const ivm = require('isolated-vm');
  const box = new ivm.Isolate({ memoryLimit: 128 });
  await box.createContext(); // a worker that is ready has run something
  const call = new ivm.Reference(async (args) => args);
  return {
    run: async (source) => {
      const context = await box.createContext();
      await context.global.set('_call', call);
      const value = await context.eval('(async () => { const tools = {a: {b: async (x) => JSON.parse(await _call.apply(undefined, [JSON.stringify(x)], {result: {promise: true}}))}};\n' +
        'return JSON.stringify(await (async () => {' + source + '\n})()) })()', { promise: true });
      context.release();
      return value;
    },
    close: async () => box.dispose(),
  };
};

const now = () => Number(process.hrtime.bigint()) / 1e6;
const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];
const rss = (pid) => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync('/proc/' + pid + '/status', 'utf8'))[1]) / 1024;

const main = async (ask) => {
  const worker = ask.mode === 'vm' ? forked : isolate;
  const timed = async (w, source) => { const t = now(); await w.run(source); return now() - t; };
  const kept = async (source) => {
    const w = await worker();
    const took = [];
    await w.run(source);
    for (let i = 0; i < ask.scripts; i++) took.push(await timed(w, source));
    await w.close();
    return median(took);
  };
  const fresh = async (source) => {
    const took = [];
    for (let i = 0; i < ask.scripts; i++) {
      const w = await worker();
      took.push(await timed(w, source));
      await w.close();
    }
    return median(took);
  };
  const rate = async (callers, source) => {
    const began = now();
    let n = 0;
    await Promise.all(Array.from({ length: callers }, async () => {
      while (now() - began < ask.round) {
        const w = await worker();
        if (source) await w.run(source);
        await w.close();
        n++;
      }
    }));
    return n / ((now() - began) / 1000);
  };
  const idle = async () => {
    const before = ask.mode === 'vm' ? 0 : rss(process.pid);
    const all = await Promise.all(Array.from({ length: 8 }, worker));
    await new Promise((r) => setTimeout(r, 1000));
    const each = ask.mode === 'vm' ? all.reduce((sum, w) => sum + rss(w.pid), 0) / 8 : (rss(process.pid) - before) / 8;
    for (const w of all) await w.close();
    return each;
  };
  return [await kept(ask.tiny), await fresh(ask.tiny), await fresh(ask.oneCall), (await fresh(ask.manyCalls)) / ask.callsOf, await fresh(ask.transform),
    await rate(1, ask.oneCall), await rate(16, ask.oneCall), await rate(64, ask.oneCall), await rate(1, null), await idle()];
};

if (process.argv[2] === 'child') child();
else main(JSON.parse(process.argv[2])).then((values) => { process.stdout.write(JSON.stringify(values)); process.exit(0); });
