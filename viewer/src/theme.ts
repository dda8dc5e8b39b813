// Dark or light: as the system wishes, or as the reader chose.

import { useEffect, useState } from "preact/hooks";

export type Theme = "auto" | "light" | "dark";

const NEXT: Record<Theme, Theme> = { auto: "dark", dark: "light", light: "auto" };
const KEY = "interlock-theme";

function remembered(): Theme {
  try {
    const known = localStorage.getItem(KEY);
    return known === "dark" || known === "light" ? known : "auto";
  } catch {
    return "auto"; // a page on a disk may have no storage
  }
}

export function useTheme(): { theme: Theme; dark: boolean; turn(): void } {
  const [theme, choose] = useState<Theme>(remembered);
  const system = matchMedia("(prefers-color-scheme: dark)");
  const [wished, wish] = useState(system.matches);
  useEffect(() => {
    const hear = (): void => wish(system.matches);
    system.addEventListener("change", hear);
    return () => system.removeEventListener("change", hear);
  }, []);
  const dark = theme === "auto" ? wished : theme === "dark";
  useEffect(() => {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // likewise
    }
  }, [dark, theme]);
  return { theme, dark, turn: () => choose(NEXT[theme]) };
}
