// An explanation on hover and focus.
import * as Radix from "@radix-ui/react-tooltip";
import type { ReactNode } from "react";

export function Tip({ text, children }: { text: ReactNode; children: ReactNode }) {
  return (
    <Radix.Root>
      <Radix.Trigger asChild>{children}</Radix.Trigger>
      <Radix.Portal>
        <Radix.Content className="tip" sideOffset={6} collisionPadding={8}>
          {text}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

export const TipProvider = Radix.Provider;
