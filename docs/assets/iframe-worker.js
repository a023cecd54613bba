// Browsers start no worker for a page that was opened from disk. The search of the site needs one, so there it
// runs in a hidden frame instead: same messages, same script.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html>";
      const source = String(url);
      this.ready = new Promise((resolve, reject) => {
        this.frame.addEventListener("load", () => {
          const inside = this.frame.contentWindow;
          inside.postMessage = (data) => {
            const event = new MessageEvent("message", { data });
            this.dispatchEvent(event);
            this.onmessage?.(event);
          };
          const script = inside.document.createElement("script");
          script.src = source;
          script.addEventListener("load", () => resolve(inside));
          script.addEventListener("error", reject);
          inside.document.body.append(script);
        }, { once: true });
      });
      document.documentElement.append(this.frame);
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
