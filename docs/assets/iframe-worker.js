// Browsers start no Worker from file://, so the search worker runs in a hidden frame there. Material looks for this name.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const home = new URL(url, document.baseURI).href
      this.frame = Object.assign(document.createElement("iframe"), { hidden: true })
      document.body.append(this.frame)
      const inner = this.frame.contentWindow
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = inner.document.createElement("script")
          Object.assign(script, { src: new URL(source, home).href, onload: resolve, onerror: reject })
          inner.document.head.append(script)
        })
      inner.postMessage = (data) => {
        const message = new MessageEvent("message", { data })
        this.dispatchEvent(message)
        if (this.onmessage) this.onmessage(message)
      }
      inner.importScripts = async (...sources) => {
        for (const source of sources) await load(source)
      }
      this.ready = load(home)
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
