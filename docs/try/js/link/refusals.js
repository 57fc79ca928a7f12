// How a board refuses, in words: status and detail of docs/protocol.md.
import { REASONS } from "../../core/flipbit.js";

/** fb_status of firmware/core/include/flipbit.h, by number. */
export const CORE_STATUS = ["OK", "TRUNCATED", "MAGIC", "VERSION", "LENGTH", "CRC", "RESERVED", "TABLE", "INDEX", "SHAPE", "SCALE", "METADATA",
  "ALIGN", "OFFSET", "KIND", "FLAGS", "WINDOW", "SHIFT", "MULTIPLIER", "OVERFLOW", "LIVE", "ARENA", "ARGUMENT", "FLASH", "FULL", "EMPTY",
  "OWNER", "ORDER", "STATE"];

/** What the core on the board says, in words. */
export const coreReason = (status) => REASONS[`FB_ERR_${CORE_STATUS[status]}`] ?? `FB_ERR_${CORE_STATUS[status] ?? status}`;

const NOT_NOW = {
  1: "it has no model: upload one", 2: "the input is not loaded yet", 3: "no upload has begun", 4: "the upload is not complete",
  5: "the slot holds no image", 6: "the net does not stand still at a layer", 7: "the board has no storage", 8: "no net is learning",
  9: "no step of learning has begun", 10: "a step of learning is under way, or the guard is on: Forget or Reset ends it", 11: "what was learned is not saved", 12: "nobody listens",
};

export function refusal(command, status, detail) {
  const reasons = {
    1: "the firmware does not know this command: flash a newer one",
    2: `a payload of ${detail} bytes is too short or too long`,
    3: `an offset, index or length is too large: the limit is ${detail}`,
    4: `pieces must follow each other: expected ${detail}`,
    5: NOT_NOW[detail] ?? `not now (${detail})`,
    6: `the board's core refuses: ${coreReason(detail)}`,
    7: `storage failed (${detail}): is the flash locked or worn?`,
    8: `slot ${detail} holds the model in use: select another first`,
    10: `a piece is not what came at its offset (${detail}) before`,
    11: `learning or saving failed: ${coreReason(detail)}`,
    12: "the board is locked: hold its button or set its jumper, or unlock it with flipbit device --key",
  };
  return `${command}: ${reasons[status] ?? `status ${status}, ${detail}`}`;
}
