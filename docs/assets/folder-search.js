// Browsers give no worker to a page that was opened from a folder. The theme's search then runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      this.frame = new Promise((ready) => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        frame.onload = () => {
          const inside = frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const worker = inside.document.createElement("script");
          worker.src = script;
          worker.onload = () => ready(inside);
          inside.document.body.append(worker);
        };
        document.body.append(frame);
      });
    }

    async postMessage(data) {
      (await this.frame).dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
