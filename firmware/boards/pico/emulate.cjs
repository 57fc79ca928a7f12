// Runs a .uf2 in rp2040js (npm install rp2040js), an emulator of the RP2040:
//
//     NODE_PATH=…/node_modules node emulate.cjs flipbit.uf2 [instructions]
//
// UART0 goes to stdout, semihosting text to stderr; ends with the status of a semihosting exit, or 0 after so many
// instructions (10 million). rp2040js comes without the chip's ROM, so its part of starting is done here: check the boot
// stage's CRC, copy it to the end of RAM, run it.
'use strict';
const fs = require('fs');
const { RP2040 } = require('rp2040js');

const FLASH = 0x10000000;
const RAM = 0x20000000;
const STAGE = { address: 0x20041f00, size: 256 };
const WRITE0 = 0x04;
const EXIT_EXTENDED = 0x20;
const NANOSECONDS = 8; // a cycle at 125 MHz

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}

function load(chip, uf2) {
  for (let at = 0; at < uf2.length; at += 512) {
    const magics = [uf2.readUInt32LE(at), uf2.readUInt32LE(at + 4), uf2.readUInt32LE(at + 508)];
    if (magics[0] !== 0x0a324655 || magics[1] !== 0x9e5d5157 || magics[2] !== 0x0ab16f30) {
      fail(`block ${at / 512} is not UF2`);
    }
    const address = uf2.readUInt32LE(at + 12);
    const size = uf2.readUInt32LE(at + 16);
    chip.flash.set(uf2.subarray(at + 32, at + 32 + size), address - FLASH);
  }
}

function crc(bytes) {
  let found = 0xffffffff;
  for (const byte of bytes) {
    found ^= byte << 24;
    for (let bit = 0; bit < 8; bit++) {
      found = found & 0x80000000 ? (found << 1) ^ 0x04c11db7 : found << 1;
    }
  }
  return found >>> 0;
}

function startLikeRom(chip) {
  const stage = Buffer.from(chip.flash.subarray(0, STAGE.size));
  if (crc(stage.subarray(0, 252)) !== stage.readUInt32LE(252)) {
    fail('the ROM would not start this: wrong CRC of the boot stage');
  }
  chip.sram.set(stage, STAGE.address - RAM);
  chip.core.SP = STAGE.address;
  chip.core.PC = STAGE.address;
}

function semihosting(chip) {
  const [operation, argument] = chip.core.registers;
  if (operation === WRITE0) {
    let text = '';
    for (let at = argument; chip.readUint8(at); at++) text += String.fromCharCode(chip.readUint8(at));
    process.stderr.write(text);
  } else if (operation === EXIT_EXTENDED) {
    process.stderr.write(`cycles ${chip.core.cycles}\n`);
    process.exit(chip.readUint32(argument + 4));
  }
}

if (process.argv.length < 3) fail('usage: node emulate.cjs PROGRAM.uf2 [instructions]');
const chip = new RP2040();
chip.uart[0].onByte = (byte) => process.stdout.write(Buffer.from([byte]));
chip.onBreak = () => semihosting(chip);
load(chip, fs.readFileSync(process.argv[2]));
startLikeRom(chip);
for (let left = Number(process.argv[3] || 1e7); left > 0; left--) {
  chip.clock.tick(chip.core.executeInstruction() * NANOSECONDS);
}
