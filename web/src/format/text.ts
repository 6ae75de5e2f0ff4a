// Text from clients, engines and policies is hostile: it is shown as text, with every character
// that hides or reorders other text made visible, and cut where it is too long.

/** A stretch of text, or the name of a character that can't be seen. */
export interface Piece {
  text: string;
  hidden: boolean;
}

const NAMES: Record<number, string> = {
  9: "TAB",
  10: "LF",
  13: "CR",
  27: "ESC",
  127: "DEL",
  173: "SHY",
  1564: "ALM",
  8203: "ZWSP",
  8204: "ZWNJ",
  8205: "ZWJ",
  8206: "LRM",
  8207: "RLM",
  8232: "LS",
  8233: "PS",
  8234: "LRE",
  8235: "RLE",
  8236: "PDF",
  8237: "LRO",
  8238: "RLO",
  8288: "WJ",
  8294: "LRI",
  8295: "RLI",
  8296: "FSI",
  8297: "PDI",
  65279: "BOM",
};

const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u;

/** The longest text that is shown before "more". */
export const SHOWN_MAX = 4000;

/** Splits a text at its invisible characters. With `multiline`, tabs and line ends stay. */
export function visiblePieces(text: string, multiline = false): Piece[] {
  const pieces: Piece[] = [];
  let plain = "";
  const flush = () => {
    if (plain !== "") pieces.push({ text: plain, hidden: false });
    plain = "";
  };
  for (const character of text) {
    const kept = multiline && (character === "\n" || character === "\t");
    if (kept || !HIDDEN.test(character)) {
      plain += character;
      continue;
    }
    flush();
    pieces.push({ text: nameOf(character.codePointAt(0) ?? 0), hidden: true });
  }
  flush();
  return pieces;
}

function nameOf(code: number): string {
  return NAMES[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** The text as one string, for canvases and attributes. */
export function visibleText(text: string, max = 200): string {
  return visiblePieces(cut(text, max).text)
    .map((piece) => (piece.hidden ? `\u2039${piece.text}\u203a` : piece.text))
    .join("");
}

/** A reason as a sentence of its own: its first letter is a capital, and it ends. */
export function sentence(text: string): string {
  const [first = "", ...rest] = text.trim();
  const whole = first.toUpperCase() + rest.join("");
  return whole === "" || /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

/** Cuts a text to at most `max` UTF-16 units, never inside a character. */
export function cut(text: string, max: number): { text: string; left: number } {
  if (text.length <= max) return { text, left: 0 };
  const last = text.charCodeAt(max - 1);
  const end = last >= 0xd800 && last <= 0xdbff ? max - 1 : max;
  return { text: text.slice(0, end), left: text.length - end };
}
