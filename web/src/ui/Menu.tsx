// A menu behind a button. It is not modal: the modal one adds a style element to the page, which
// the content security policy refuses.
import * as Radix from "@radix-ui/react-dropdown-menu";
import type { ReactNode } from "react";

export interface MenuItem {
  label: string;
  onSelect: () => void;
  danger?: boolean;
  disabled?: boolean;
}

export function Menu({
  label,
  items,
  children,
  className = "button",
}: {
  label: string;
  items: MenuItem[];
  children: ReactNode;
  className?: string;
}) {
  return (
    <Radix.Root modal={false}>
      <Radix.Trigger className={className} aria-label={label}>
        {children}
      </Radix.Trigger>
      <Radix.Portal>
        <Radix.Content className="menu" align="end" sideOffset={4}>
          {items.map((item) => (
            <Radix.Item
              key={item.label}
              className={item.danger ? "menu-item danger" : "menu-item"}
              disabled={item.disabled ?? false}
              onSelect={item.onSelect}
            >
              {item.label}
            </Radix.Item>
          ))}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}
