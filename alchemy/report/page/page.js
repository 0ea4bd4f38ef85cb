// The page: a header, and a section for each part of the report.
const FOLDED = 6; // media in a section from which on all but the first two are folded
const page = document.getElementById("page");
const nav = el("nav", {"aria-label": "sections"});
function showMedia(all) {
  const fold = item => el("details", null, el("summary", null, item.name), medium(item));
  return all.map((item, place) => (all.length > FOLDED && place > 1 ? fold(item) : medium(item)));
}
page.append(el("header", null, el("h1", null, D.title), show(D.head)), nav);
for (const {id, title, note: origin, blocks, media} of D.sections) {
  nav.append(el("a", {href: `#${id}`}, title));
  const content = id === "curves" ? curves() : media ? showMedia(media) : show(blocks);
  page.append(el("section", {id}, el("h2", null, title), note(origin), content));
}
const foot = D.foot.map(text => el("p", null, text));
page.append(el("footer", null, foot));
redraw();
document.addEventListener("toggle", redraw, true);
addEventListener("resize", redraw);
addEventListener("beforeprint", () => {
  for (const node of document.querySelectorAll("#config details, #code details")) node.open = true;
});
