// Chooses between the system's theme, light and dark.
import { Icon, type IconName } from "../ui/Icon";
import { setTheme, type Theme, useTheme } from "../ui/theme";

const CHOICES: { theme: Theme; label: string; icon: IconName }[] = [
  { theme: "auto", label: "As the system", icon: "auto" },
  { theme: "light", label: "Light", icon: "sun" },
  { theme: "dark", label: "Dark", icon: "moon" },
];

export function ThemeSwitch() {
  const theme = useTheme();
  return (
    <fieldset className="segments">
      <legend className="visually-hidden">Theme</legend>
      {CHOICES.map((choice) => (
        <button
          key={choice.theme}
          type="button"
          className="segment"
          aria-pressed={theme === choice.theme}
          title={choice.label}
          aria-label={choice.label}
          onClick={() => setTheme(choice.theme)}
        >
          <Icon name={choice.icon} />
        </button>
      ))}
    </fieldset>
  );
}
