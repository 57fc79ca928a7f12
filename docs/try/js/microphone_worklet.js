// Runs where sound is made: collects what the microphone hears into pieces of 100 ms.
const PIECE = 1600;

registerProcessor("microphone", class extends AudioWorkletProcessor {
  constructor() {
    super();
    this.piece = new Float32Array(PIECE);
    this.filled = 0;
  }

  process([channels]) {
    for (const value of channels[0] ?? []) {
      this.piece[this.filled++] = value;
      if (this.filled === PIECE) {
        this.port.postMessage(this.piece.slice());
        this.filled = 0;
      }
    }
    return true;
  }
});
