// Search in a site that is opened as a file: there a browser starts no Worker, so its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script src="${url}"></script>`;
      frame.addEventListener("load", () => {
        this.inside = frame.contentWindow;
        this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        this.waiting.forEach((data) => this.postMessage(data));
      });
      document.body.append(frame);
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }
  };
}
