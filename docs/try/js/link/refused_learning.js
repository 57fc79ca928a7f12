// Why a board cannot let its net learn, in words: the first field of LEARN_OPEN's reply, docs/protocol.md.
import { count } from "../elements.js";
import { CORE_STATUS, coreReason } from "./refusals.js";

export function learningRefusal({ status, needed, available }) {
  const missing = `The board has ${count(available)} bytes of RAM for this, learning needs ${count(needed)}: let less of the net learn.`;
  const reasons = {
    ARENA: missing,
    OWNER: "The board's flash holds what another net has learned: press Forget first.",
    STATE: "The board has learned with other settings: press Forget first.",
    VERSION: "The board's flash holds what earlier firmware has learned: press Forget first.",
  };
  return reasons[CORE_STATUS[status]] ?? `The board cannot let this net learn: ${coreReason(status)}.`;
}
