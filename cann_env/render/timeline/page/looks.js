// Colours of the two themes, and the style sheet.

export const THEMES = {
  light: {
    ground: "#ffffff", panel: "#f6f7f9", ink: "#22262b", faint: "#6d747c", rule: "#e4e7eb", band: "#fafbfc",
    path: "#c22b2b", into: "#1f5fbf", out: "#b35c00", found: "#ffd54a", chosen: "#111418", hover: "#00000022",
    edge: "#ffffff",
  },
  dark: {
    ground: "#16181c", panel: "#1f2227", ink: "#e6e8eb", faint: "#98a0a9", rule: "#2d3138", band: "#1a1d21",
    path: "#ff6b5e", into: "#7fb2ff", out: "#ffb061", found: "#e6b800", chosen: "#ffffff", hover: "#ffffff2a",
    edge: "#16181c",
  },
};

/** Colours of what a command waited for. */
export const CAUSES = {
  host: "#93a7b8", dependency: "#5b8def", stream: "#a6adb5", memory: "#c2268f", slot: "#8a6f94", cores: "#d9822b",
  link: "#2f9e78",
};

/** The ink, dark or white, that reads better on a colour. */
export function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 150 ? "#22262b" : "#ffffff";
}

/** Dark where the page around is: its own mark first (JupyterLab, VS Code), else what the system asks for. */
export function themeAround() {
  const body = document.body;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false" ? "dark" : "light";
  const kind = body.dataset.vscodeThemeKind ?? "";
  if (kind) return kind.includes("dark") || kind === "vscode-high-contrast" ? "dark" : "light";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

export const STYLE = `
.cet { --ground:#fff; --panel:#f6f7f9; --ink:#22262b; --faint:#6d747c; --rule:#e4e7eb; --accent:#1f5fbf; color-scheme:light;
  color:var(--ink); background:var(--ground); font:13px/1.4 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
  display:flex; flex-direction:column; height:100%; min-height:360px; box-sizing:border-box; position:relative;
  overflow:hidden; }
.cet.dark { --ground:#16181c; --panel:#1f2227; --ink:#e6e8eb; --faint:#98a0a9; --rule:#2d3138; --accent:#7fb2ff; color-scheme:dark; }
.cet *, .cet *::before { box-sizing:border-box; }
.cet header { display:flex; flex-wrap:wrap; align-items:center; gap:6px 14px; padding:7px 12px;
  border-bottom:1px solid var(--rule); background:var(--panel); }
.cet [hidden] { display:none !important; }
.cet header > div:first-child { flex:1 1 320px; min-width:0; }
.cet h1 { font-size:14px; font-weight:650; margin:0; overflow-wrap:anywhere; }
.cet .figures { color:var(--faint); font-variant-numeric:tabular-nums; }
.cet .figures b { color:var(--ink); font-weight:600; }
.cet .tools { display:flex; flex-wrap:wrap; align-items:center; gap:6px; margin-left:auto; }
.cet .group { display:inline-flex; }
.cet button, .cet input, .cet select { font:inherit; color:inherit; background:var(--ground);
  border:1px solid var(--rule); border-radius:6px; padding:3px 9px; min-height:28px; }
.cet .group button { border-radius:0; margin-left:-1px; }
.cet .group button:first-child { border-radius:6px 0 0 6px; margin-left:0; }
.cet .group button:last-child { border-radius:0 6px 6px 0; }
.cet button { cursor:pointer; }
.cet button:hover:not(:disabled) { border-color:var(--faint); }
.cet button:disabled { opacity:.42; cursor:default; }
.cet button[aria-pressed=true] { background:var(--accent); border-color:var(--accent); color:var(--ground); }
.cet :focus-visible { outline:2px solid var(--accent); outline-offset:1px; }
.cet input[type=search] { width:170px; }
.cet .found { color:var(--faint); min-width:4.5em; font-variant-numeric:tabular-nums; }
.cet .middle { flex:1; display:flex; min-height:0; }
.cet .board { position:relative; flex:1; min-width:0; overflow:hidden; }
.cet .board canvas { position:absolute; inset:0; width:100%; height:100%; display:block; }
.cet .board .front { cursor:grab; touch-action:none; }
.cet .board .front.drag { cursor:grabbing; }
.cet .board .front.edit { cursor:move; }
.cet .board .front:focus-visible { outline-offset:-2px; }
.cet aside { width:312px; overflow:auto; border-left:1px solid var(--rule); background:var(--panel);
  padding:10px 12px; }
.cet aside h2 { font-size:13px; margin:0 26px 2px 0; overflow-wrap:anywhere; }
.cet aside h3 { font-size:11.5px; margin:12px 0 3px; color:var(--faint); font-weight:600; }
.cet aside .shut { position:absolute; right:10px; padding:0 7px; min-height:24px; }
.cet dl { display:grid; grid-template-columns:max-content 1fr; gap:1px 10px; margin:4px 0; }
.cet dt { color:var(--faint); } .cet dd { margin:0; font-variant-numeric:tabular-nums; overflow-wrap:anywhere; }
.cet ul { margin:0; padding:0; list-style:none; }
.cet li { overflow-wrap:anywhere; padding:1px 0; }
.cet .link { border:0; background:none; padding:0; min-height:0; color:var(--accent); text-align:left;
  overflow-wrap:anywhere; }
.cet .link:hover { text-decoration:underline; }
.cet .strip { display:flex; height:8px; border-radius:3px; overflow:hidden; margin:4px 0; background:var(--rule); }
.cet .chip { display:inline-block; width:10px; height:10px; border-radius:2px; margin-right:5px;
  vertical-align:-1px; border:1px solid transparent; }
.cet .tip { position:absolute; pointer-events:none; z-index:5; max-width:400px; background:var(--panel);
  border:1px solid var(--rule); border-radius:7px; padding:7px 10px; box-shadow:0 4px 18px #0003; font-size:12px; }
.cet .tip h2 { font-size:12.5px; margin:0; overflow-wrap:anywhere; }
.cet footer { display:flex; flex-wrap:wrap; gap:3px 14px; align-items:center; padding:5px 12px;
  border-top:1px solid var(--rule); color:var(--faint); font-size:12px; background:var(--panel); }
.cet footer .legend { display:flex; flex-wrap:wrap; gap:2px 12px; }
.cet footer .hint { margin-left:auto; }
.cet .said { padding:5px 12px; border-bottom:1px solid var(--rule); background:var(--panel); }
.cet .said.wrong { color:#b3261e; } .cet.dark .said.wrong { color:#ff8a80; }
.cet .less { color:#1b7f3b; font-weight:600; } .cet .more { color:#b3261e; font-weight:600; }
.cet.dark .less { color:#5fd38a; } .cet.dark .more { color:#ff8a80; }
.cet dialog { color:var(--ink); background:var(--ground); border:1px solid var(--rule); border-radius:10px;
  max-width:560px; padding:14px 18px; }
.cet dialog::backdrop { background:#0006; }
.cet dialog table { border-spacing:0 3px; } .cet dialog td:first-child { padding-right:18px; white-space:nowrap; }
.cet kbd { border:1px solid var(--rule); border-radius:4px; padding:0 5px; font:12px ui-monospace,monospace;
  background:var(--panel); }
.cet .quiet { position:absolute; width:1px; height:1px; overflow:hidden; clip-path:inset(50%); }
@media (max-width:760px) { .cet aside { position:absolute; right:0; top:0; bottom:0; z-index:4; } }
`;
