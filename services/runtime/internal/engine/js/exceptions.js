// DOMException, which the functions of the web platform throw.
(function (host, core) {
  'use strict';
  const codes = { __proto__: null };
  class DOMException extends Error {
    #name;
    constructor(message = '', options = 'Error') {
      super(core.text(message));
      const named = typeof options === 'object' && options !== null ? options : { name: options };
      this.#name = named.name === undefined ? 'Error' : core.text(named.name);
      if ('cause' in named) Object.defineProperty(this, 'cause', { value: named.cause, writable: true, configurable: true });
    }
    get name() { return this.#name; }
    get code() { return codes[this.#name] || 0; }
  }
  for (const [name, constant, code] of [
    ['IndexSizeError', 'INDEX_SIZE', 1], ['NotFoundError', 'NOT_FOUND', 8], ['NotSupportedError', 'NOT_SUPPORTED', 9],
    ['InvalidCharacterError', 'INVALID_CHARACTER', 5], ['InvalidStateError', 'INVALID_STATE', 11], ['SyntaxError', 'SYNTAX', 12],
    ['InvalidAccessError', 'INVALID_ACCESS', 15], ['TypeMismatchError', 'TYPE_MISMATCH', 17], ['SecurityError', 'SECURITY', 18],
    ['NetworkError', 'NETWORK', 19], ['AbortError', 'ABORT', 20], ['QuotaExceededError', 'QUOTA_EXCEEDED', 22],
    ['TimeoutError', 'TIMEOUT', 23], ['DataCloneError', 'DATA_CLONE', 25],
  ]) {
    codes[name] = code;
    Object.defineProperty(DOMException, constant + '_ERR', { value: code, enumerable: true });
  }
  Object.defineProperty(DOMException.prototype, Symbol.toStringTag, { value: 'DOMException', configurable: true });
  core.define('DOMException', DOMException);
  core.refuse = (name, message) => { throw new DOMException(message, name); };
});
