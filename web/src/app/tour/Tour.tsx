// A guided tour of three pages, offered once. It lies beside the page, which can be used meanwhile.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useRouterState } from "@tanstack/react-router";
import { type KeyboardEvent, type ReactNode, useEffect, useRef } from "react";
import { call } from "../../api/client";
import { whoami } from "../../api/queries";
import { Icon } from "../../ui/Icon";
import { tour, useTourOffered, useTourStep } from "./state";
import { STEPS, type TourStep } from "./steps";

export function Tour() {
  const at = useTourStep();
  const step = at === null ? undefined : STEPS[at];
  return at !== null && step ? <Running at={at} step={step} /> : <Offer />;
}

/** Offers the tour on the first visit, once the visitor may see data. */
function Offer() {
  const offered = useTourOffered();
  const { data } = useQuery(whoami);
  const path = useRouterState({ select: (state) => state.location.pathname });
  if (offered || !data || path === "/sign-in") return null;
  return (
    <Card
      title="New to treadle?"
      text={[
        "A tour of three pages, in two minutes: does the work get done, why did a program wait, and who decided that?",
      ]}
    >
      <button type="button" className="button" onClick={tour.end}>
        No, thanks
      </button>
      <button type="button" className="button primary" onClick={tour.start}>
        Take the tour
      </button>
    </Card>
  );
}

const NO_PROGRAM = "No program is on record yet: look again after a first request.";

function Running({ at, step }: { at: number; step: TourStep }) {
  const next = useRef<HTMLButtonElement>(null);
  const hasNoProgram = usePage(at, step);
  useMark(step.target);
  useEffect(() => next.current?.focus(), []);
  const end = () => {
    tour.end();
    document.getElementById("main")?.focus({ preventScroll: true });
  };
  const last = at === STEPS.length - 1;
  return (
    <Card
      title={step.title}
      text={hasNoProgram ? [...step.text, NO_PROGRAM] : step.text}
      onClose={end}
    >
      <span className="dim">
        {at + 1} of {STEPS.length}
      </span>
      <button
        type="button"
        className="button"
        disabled={at === 0}
        onClick={() => tour.goTo(at - 1)}
      >
        Back
      </button>
      <button
        type="button"
        className="button primary"
        ref={next}
        onClick={() => (last ? end() : tour.goTo(at + 1))}
      >
        {last ? "Done" : "Next"}
      </button>
    </Card>
  );
}

function Card({
  title,
  text,
  onClose = tour.end,
  children,
}: {
  title: string;
  text: string[];
  onClose?: () => void;
  children: ReactNode;
}) {
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Escape") onClose();
  };
  return (
    <div role="dialog" aria-label="Guided tour" className="tour" onKeyDown={onKey}>
      <button
        type="button"
        className="button ghost icon-only"
        aria-label="Close the tour"
        onClick={onClose}
      >
        <Icon name="close" />
      </button>
      <div aria-live="polite">
        <h2>{title}</h2>
        {text.map((paragraph) => (
          <p key={paragraph}>{paragraph}</p>
        ))}
      </div>
      <footer>{children}</footer>
    </div>
  );
}

/** Opens the page of a step; returns whether it needs a program that does not exist. */
function usePage(at: number, step: TourStep): boolean {
  const navigate = useNavigate();
  const { data: program } = useQuery(example);
  // biome-ignore lint/correctness/useExhaustiveDependencies: each step opens its page anew
  useEffect(() => {
    if (step.page === "overview") void navigate({ to: "/" });
    else if (step.page === "policies") void navigate({ to: "/policies" });
    else if (program) void navigate({ to: "/programs/$program", params: { program } });
    else if (program === null) void navigate({ to: "/programs" });
  }, [at, step.page, program, navigate]);
  return step.page === "program" && program === null;
}

/** A program with something to explain: one that is paused, else the one with most steps. */
const example = {
  queryKey: ["tour"],
  queryFn: async (): Promise<string | null> => {
    for (const query of [{ status: "paused" }, { sort: "-steps" }]) {
      const { programs } = await call("get", "/api/v1/programs", { query: { ...query, limit: 1 } });
      if (programs[0]) return programs[0].program_id;
    }
    return null;
  },
  staleTime: Number.POSITIVE_INFINITY,
};

const LOOK_MS = 200;

/** Marks what a step is about, also where it appears later or is replaced. */
function useMark(selector: string): void {
  useEffect(() => {
    let marked: Element | null = null;
    const look = () => {
      const found = document.querySelector(selector);
      if (found === marked) return;
      marked?.removeAttribute("data-tour");
      found?.setAttribute("data-tour", "");
      found?.scrollIntoView({ block: "start", inline: "nearest" });
      marked = found;
    };
    look();
    const timer = setInterval(look, LOOK_MS);
    return () => {
      clearInterval(timer);
      marked?.removeAttribute("data-tour");
    };
  }, [selector]);
}
