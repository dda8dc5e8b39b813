// Dark or light colours: the setting of the system, or the choice of the reader.

import { useEffect, useState } from "preact/hooks";

export type Theme = "auto" | "light" | "dark";

const NEXT: Record<Theme, Theme> = { auto: "dark", dark: "light", light: "auto" };
const KEY = "interlock-theme";

function storedTheme(): Theme {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === "dark" || stored === "light" ? stored : "auto";
  } catch {
    return "auto"; // a page opened from a file may have no storage
  }
}

export function useTheme(): { theme: Theme; dark: boolean; turn(): void } {
  const [theme, setTheme] = useState<Theme>(storedTheme);
  const system = matchMedia("(prefers-color-scheme: dark)");
  const [systemDark, setSystemDark] = useState(system.matches);
  useEffect(() => {
    const listener = (): void => setSystemDark(system.matches);
    system.addEventListener("change", listener);
    return () => system.removeEventListener("change", listener);
  }, []);
  const dark = theme === "auto" ? systemDark : theme === "dark";
  useEffect(() => {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // a page opened from a file may have no storage
    }
  }, [dark, theme]);
  return { theme, dark, turn: () => setTheme(NEXT[theme]) };
}
