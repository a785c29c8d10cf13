// What the console adds to htmx: a status line, and a button that holds updates back. Nothing is lost while they are
// held: the stream waits, and goes on from the same place.
(() => {
  const status = document.getElementById('status');
  const pause = document.getElementById('pause');
  let held = null;
  let release = null;
  let connected = false;

  const say = (text) => { status.textContent = text; };
  const describe = () => say(held ? 'Updates are paused.' : connected ? 'Live' : 'Connecting…');

  pause.hidden = false;
  describe();
  pause.addEventListener('click', () => {
    if (held) {
      release();
      held = null;
    } else {
      held = new Promise((resolve) => { release = resolve; });
    }
    pause.textContent = held ? 'Resume updates' : 'Pause updates';
    pause.setAttribute('aria-pressed', String(Boolean(held)));
    describe();
  });

  document.addEventListener('htmx:sse:before:message', (e) => {
    if (held) e.detail.waitUntil(held);
  });
  document.addEventListener('htmx:sse:after:connection', (e) => {
    connected = e.detail.connection.status === 200;
    describe();
  });
  document.addEventListener('htmx:sse:error', () => {
    connected = false;
    say('The connection is lost. Trying again…');
  });
  document.addEventListener('htmx:sse:close', () => {
    connected = false;
    say('Updates have ended. Load the page again.');
  });
  document.addEventListener('notice', (e) => say(e.detail.data));
})();
