/* Loads search when the reader first reaches for it. Material fetches its worker and the whole index
   with the first page; here both wait until the search box is opened or focused. */
(() => {
  "use strict";

  let wanted = false;
  const waiting = [];

  function whenSearched(act) {
    if (wanted) act();
    else waiting.push(act);
  }

  function begin(event) {
    if (wanted || !event.target.closest?.("#__search, .md-search")) return;
    wanted = true;
    waiting.forEach((act) => act());
  }
  for (const type of ["change", "focusin", "input"]) document.addEventListener(type, begin);

  const { open, send } = XMLHttpRequest.prototype;
  const indexes = new WeakSet();

  XMLHttpRequest.prototype.open = function (method, url, ...rest) {
    if (/search\/search_index\.json$/.test(url)) indexes.add(this);
    return open.call(this, method, url, ...rest);
  };

  XMLHttpRequest.prototype.send = function (body) {
    if (indexes.delete(this)) whenSearched(() => send.call(this, body));
    else send.call(this, body);
  };

  /* Stands in for the worker until it is wanted, and keeps what it was told, in order. */
  const Worker = window.Worker;
  window.Worker = function (url, options) {
    if (!/\/workers\/search\./.test(url)) return new Worker(url, options);
    // Relative to this page: by the time of the search, a click may have led into another folder.
    const address = new URL(url, document.baseURI).href;
    const standIn = new EventTarget();
    const told = [];
    standIn.postMessage = (message) => told.push(message);
    whenSearched(() => {
      const worker = new Worker(address, options);
      worker.addEventListener("message", ({ data }) => {
        standIn.dispatchEvent(new MessageEvent("message", { data }));
      });
      standIn.postMessage = (message) => worker.postMessage(message);
      told.forEach(standIn.postMessage);
    });
    return standIn;
  };
})();
