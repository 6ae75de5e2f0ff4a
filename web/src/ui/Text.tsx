// Text from outside, made safe to look at.
import { useState } from "react";
import { count } from "../format/number";
import { cut, SHOWN_MAX, visiblePieces } from "../format/text";

/** One line of foreign text, isolated from the direction of what is around it. */
export function Text({ value, max = 300 }: { value: string; max?: number }) {
  const { text, left } = cut(value, max);
  return (
    <bdi>
      <Pieces text={text} />
      {left > 0 ? "…" : null}
    </bdi>
  );
}

/** A block of foreign text with its line ends, cut until the user expands it. */
export function TextBlock({ value }: { value: string }) {
  const [shown, setShown] = useState(SHOWN_MAX);
  const { text, left } = cut(value, shown);
  return (
    <div className="text-block">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling block must be reachable */}
      <pre tabIndex={0}>
        <Pieces text={text} multiline />
      </pre>
      {left > 0 ? (
        <button
          type="button"
          className="button small"
          onClick={() => setShown((before) => before * 4)}
        >
          {count(left)} more characters
        </button>
      ) : null}
    </div>
  );
}

function Pieces({ text, multiline = false }: { text: string; multiline?: boolean }) {
  return visiblePieces(text, multiline).map((piece, at) =>
    piece.hidden ? (
      // biome-ignore lint/suspicious/noArrayIndexKey: the pieces of a text have no other name
      <span key={at} className="control-character">
        {piece.text}
      </span>
    ) : (
      piece.text
    ),
  );
}
