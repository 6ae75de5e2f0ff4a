// Where the console begins.
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { queryClient } from "./api/queries";
import { onSessionChange } from "./api/session";
import { router } from "./app/router";
import { feed } from "./live/feed";
import { history } from "./live/history";
import "./ui/theme";
import "./styles/index.css";

feed.onReplaced = () => void queryClient.resetQueries();
feed.start();
history.start();
onSessionChange(() => void queryClient.resetQueries());

let wasLost = false;
feed.watch(() => {
  if (feed.state === "lost") wasLost = true;
  if (feed.state === "live" && wasLost) {
    wasLost = false;
    void queryClient.invalidateQueries();
  }
});

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </StrictMode>,
  );
}
