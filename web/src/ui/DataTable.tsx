// A virtualised table: only visible rows are in the document.
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, type ReactNode, useEffect, useRef } from "react";
import { Icon } from "./Icon";

const ROW_HEIGHT = 32;

export interface Column<T> {
  id: string;
  header: string;
  cell: (row: T) => ReactNode;
  /** Its share of the width, as in CSS grids. */
  width: string;
  numeric?: boolean;
  /** Hidden on narrow screens. */
  wideOnly?: boolean;
  /** The daemon's sort key, if the column can be sorted. */
  sort?: string;
}

interface Props<T> {
  label: string;
  rows: T[];
  columns: Column<T>[];
  keyOf: (row: T) => string;
  onOpen?: (row: T) => void;
  selected?: string | undefined;
  sort?: string | undefined;
  onSort?: (sort: string) => void;
  onEnd?: () => void;
  footer?: ReactNode;
  follow?: boolean;
}

/** `-name` sorts the greatest first; the next click on a column turns it around. */
function nextSort(current: string | undefined, column: string): string {
  return current === `-${column}` ? column : `-${column}`;
}

export function DataTable<T>(props: Props<T>) {
  const { rows, columns, keyOf, onOpen, selected, onEnd, follow } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 8,
  });
  const items = virtual.getVirtualItems();
  const lastShown = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (onEnd && rows.length > 0 && lastShown >= rows.length - 20) onEnd();
  }, [onEnd, rows.length, lastShown]);
  useEffect(() => {
    if (follow && rows.length > 0) virtual.scrollToIndex(rows.length - 1);
  }, [follow, rows.length, virtual]);

  const wide = columns.map((column) => column.width).join(" ");
  const narrow = columns
    .filter((column) => !column.wideOnly)
    .map((column) => column.width)
    .join(" ");
  const style = { "--columns": wide, "--columns-narrow": narrow } as React.CSSProperties;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling area must be reachable
    // biome-ignore lint/a11y/noStaticElementInteractions: its arrow keys move between rows
    <div className="table-scroll" ref={scroller} tabIndex={0} onKeyDown={moveFocus}>
      <div
        role="table"
        aria-label={props.label}
        aria-rowcount={rows.length + 1}
        className="table"
        style={style}
      >
        <div role="rowgroup" className="table-head">
          <div role="row" aria-rowindex={1} className="table-row">
            {columns.map((column) => (
              <HeaderCell key={column.id} column={column} {...props} />
            ))}
          </div>
        </div>
        <div role="rowgroup" className="table-body" style={{ height: virtual.getTotalSize() }}>
          {items.map((item) => {
            const row = rows[item.index];
            if (row === undefined) return null;
            const key = keyOf(row);
            return (
              <div
                key={key}
                role="row"
                aria-rowindex={item.index + 2}
                aria-current={selected === key ? "true" : undefined}
                className={onOpen ? "table-row body open" : "table-row body"}
                style={{ transform: `translateY(${item.start}px)` }}
                tabIndex={onOpen ? -1 : undefined}
                onClick={onOpen ? (event) => openRow(event, () => onOpen(row)) : undefined}
                onKeyDown={(event) => {
                  if (onOpen && event.key === "Enter" && event.target === event.currentTarget)
                    onOpen(row);
                }}
              >
                {columns.map((column) => (
                  <div key={column.id} role="cell" className={cellClass(column)}>
                    {column.cell(row)}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      </div>
      {props.footer ? <div className="table-foot">{props.footer}</div> : null}
    </div>
  );
}

function openRow(event: React.MouseEvent, open: () => void): void {
  const target = event.target as HTMLElement;
  if (target.closest("a, button") || window.getSelection()?.toString()) return;
  open();
}

function cellClass<T>(column: Column<T>): string {
  return ["cell", column.numeric ? "num" : "", column.wideOnly ? "wide-only" : ""]
    .filter(Boolean)
    .join(" ");
}

function HeaderCell<T>({
  column,
  sort,
  onSort,
}: {
  column: Column<T>;
  sort?: string | undefined;
  onSort?: ((sort: string) => void) | undefined;
}) {
  const direction =
    sort === `-${column.sort}` ? "descending" : sort === column.sort ? "ascending" : "none";
  if (!column.sort || !onSort) {
    return (
      <div role="columnheader" className={cellClass(column)}>
        {column.header}
      </div>
    );
  }
  const name = column.sort;
  return (
    <div role="columnheader" aria-sort={direction} className={cellClass(column)}>
      <button type="button" className="sort" onClick={() => onSort(nextSort(sort, name))}>
        {column.header}
        <span className={`sort-mark ${direction}`}>
          <Icon name="down" />
        </span>
      </button>
    </div>
  );
}

function moveFocus(event: KeyboardEvent<HTMLDivElement>): void {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const rows = [...event.currentTarget.querySelectorAll<HTMLElement>(".table-row.body.open")];
  if (rows.length === 0) return;
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const next = rows[Math.max(0, at + (event.key === "ArrowDown" ? 1 : at < 0 ? 1 : -1))];
  if (!next) return;
  event.preventDefault();
  next.focus();
}
