// The microphone as int16 samples at 16 kHz, while somebody listens.
import { RATE, toInt16 } from "./wav.js";

const WITHOUT_TOUCH = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };

export class Microphone {
  /** Asks for the microphone; `onSamples` gets Int16Array pieces. Throws what to do where there is none. */
  static async open(onSamples) {
    if (!navigator.mediaDevices?.getUserMedia || !("AudioWorkletNode" in window)) {
      throw new Error("This browser gives pages no microphone here: it needs localhost or https. A .wav file works without.");
    }
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: WITHOUT_TOUCH });
    } catch (error) {
      throw new Error(`No microphone: ${error.message}. Allow it beside the address, or choose a .wav file.`);
    }
    const context = new AudioContext({ sampleRate: RATE }); // the browser resamples
    const found = new Microphone(stream, context);
    try {
      await context.audioWorklet.addModule(new URL("./microphone_worklet.js", import.meta.url));
      const node = new AudioWorkletNode(context, "microphone", { numberOfOutputs: 0 });
      node.port.addEventListener("message", ({ data }) => { if (!found.closed) onSamples(Int16Array.from(data, (value) => toInt16(32768 * value))); });
      node.port.start();
      context.createMediaStreamSource(stream).connect(node);
      await context.resume();
    } catch (error) {
      found.close();
      throw new Error(`The microphone could not be opened at 16 kHz: ${error.message}`);
    }
    return found;
  }

  constructor(stream, context) {
    Object.assign(this, { stream, context, closed: false });
  }

  /** Called when the microphone is unplugged, or its permission taken back. */
  set onEnded(action) {
    this.stream.getAudioTracks()[0].addEventListener("ended", action);
  }

  close() {
    if (this.closed) return;
    this.closed = true;
    for (const track of this.stream.getTracks()) track.stop();
    this.context.close();
  }
}
