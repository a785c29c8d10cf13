// What is read of a page, and found in it, in a world of its own that the page's scripts cannot reach into.
(() => {
  const interactive = 'a[href],button,input,select,textarea,summary,[contenteditable=""],[contenteditable=true],[onclick],[role=button],[role=link],[role=checkbox],[role=radio],[role=tab],[role=menuitem],[role=option],[role=switch],[role=textbox],[role=combobox]';
  const roles = {A: 'link', BUTTON: 'button', SELECT: 'combobox', TEXTAREA: 'textbox', SUMMARY: 'button', IMG: 'img', NAV: 'navigation', MAIN: 'main', FORM: 'form', TABLE: 'table', TR: 'row', TH: 'columnheader', TD: 'cell', UL: 'list', OL: 'list', LI: 'listitem', DIALOG: 'dialog', IFRAME: 'iframe', H1: 'heading 1', H2: 'heading 2', H3: 'heading 3', H4: 'heading 4', H5: 'heading 5', H6: 'heading 6'};
  const inputs = {button: 'button', submit: 'button', reset: 'button', image: 'button', checkbox: 'checkbox', radio: 'radio', range: 'slider', file: 'file', hidden: ''};
  const refs = new Map(), of = new WeakMap();
  let last = 0;
  const flat = (text, most) => { text = String(text ?? '').slice(0, most * 4).replace(/\s+/g, ' ').trim(); return text.length > most ? text.slice(0, most) + '…' : text; };
  const role = e => e.getAttribute('role') || (e.tagName === 'INPUT' ? inputs[e.type] ?? 'textbox' : roles[e.tagName]) || (e.matches(interactive) ? 'element' : '');
  const nameOf = e => flat(e.getAttribute('aria-label') || (e.labels && e.labels[0] && e.labels[0].innerText) || e.getAttribute('alt') || e.getAttribute('placeholder') || e.getAttribute('title') || (e.tagName === 'INPUT' ? (role(e) === 'button' ? e.value : e.name) : e.tagName === 'SELECT' || e.tagName === 'TEXTAREA' ? e.name : ''), 200);
  const refOf = e => { let n = of.get(e); if (!n) { n = ++last; of.set(e, n); refs.set(n, new WeakRef(e)); } return n; };
  const shown = e => e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true});
  globalThis.read = (most, until) => {
    const end = Date.now() + until;
    let out = [], size = 0, seen = 0, cut = '';
    const put = (depth, text) => { const line = '  '.repeat(Math.min(depth, 20)) + text; size += line.length + 1; if (size > most) { cut = 'size'; return; } out.push(line); };
    const walk = (node, depth) => {
      for (let c = node.firstChild; c && !cut; c = c.nextSibling) {
        if (++seen % 256 === 0 && Date.now() > end) { cut = 'time'; return; }
        if (c.nodeType === 3) { const text = flat(c.data, 2000); if (text) put(depth, text); continue; }
        if (c.nodeType !== 1 || ['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'HEAD'].includes(c.tagName)) continue;
        if (c.getAttribute('aria-hidden') === 'true' || !shown(c) && getComputedStyle(c).display !== 'contents') continue;
        const r = role(c);
        if (!r) { walk(c.shadowRoot || c, depth); continue; }
        let text = r + (nameOf(c) ? ' "' + nameOf(c) + '"' : '');
        if (c.matches(interactive)) text += ' [' + refOf(c) + ']';
        if (c.tagName === 'A') text += ' -> ' + flat(c.getAttribute('href'), 200);
        if (c.disabled) text += ' disabled';
        if (c.checked) text += ' checked';
        if (['INPUT', 'TEXTAREA'].includes(c.tagName) && c.type !== 'password' && role(c) === 'textbox' && c.value) text += ' = "' + flat(c.value, 200) + '"';
        if (c.tagName === 'SELECT') text += ' = "' + flat(c.selectedOptions[0]?.label, 100) + '" of ' + [...c.options].slice(0, 30).map(o => '"' + flat(o.label, 60) + '"').join(', ');
        if (c.tagName === 'IFRAME') text += ' -> ' + flat(c.src, 200);
        put(depth, text);
        let inside = c.shadowRoot || c;
        if (c.tagName === 'IFRAME') { try { inside = c.contentDocument?.body; } catch { inside = null; } }
        if (inside && !cut && !['SELECT', 'TEXTAREA'].includes(c.tagName)) walk(inside, depth + 1);
      }
    };
    if (document.body) walk(document.body, 0);
    return {text: out.join('\n'), truncated: cut};
  };
  globalThis.at = ref => {
    const e = refs.get(ref)?.deref();
    if (!e || !e.isConnected) return {fault: 'gone'};
    e.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});
    const b = e.getBoundingClientRect();
    let x = b.x + b.width / 2, y = b.y + b.height / 2;
    for (let w = e.ownerDocument.defaultView; w !== window && w.frameElement; w = w.parent) { const f = w.frameElement.getBoundingClientRect(); x += f.x + w.frameElement.clientLeft; y += f.y + w.frameElement.clientTop; }
    return b.width && b.height && shown(e) ? {x, y} : {fault: 'hidden'};
  };
  globalThis.fill = (ref, text) => {
    const e = refs.get(ref)?.deref();
    if (!e || !e.isConnected) return {fault: 'gone'};
    if (e.tagName === 'SELECT') {
      const o = [...e.options].find(o => o.label === text || o.value === text);
      if (!o) return {fault: 'option'};
      e.value = o.value;
      for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, {bubbles: true}));
      return {done: true};
    }
    e.focus();
    if (e.select && e.tagName !== 'BUTTON') e.select(); else if (e.isContentEditable) getSelection().selectAllChildren(e); else return {fault: 'text'};
    return {};
  };
  globalThis.ew = true;
})()
