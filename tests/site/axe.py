"""Asks axe about a page, in both schemes, and judges text on a gradient, which axe does not."""

from axe_playwright_python.base import AXE_SCRIPT

from tests.site import browsers

BY_COLOUR = ["color-contrast", "link-in-text-block"]
BY_WIDTH = ["scrollable-region-focusable", "target-size"]  # what a narrower window can change
# What axe cannot judge of contrast, and why that is no fault here. Any other doubt of axe's fails.
DOUBTS = {
    "bgOverlap": "text of a drawing that stands over a shape of it",
    "elmPartiallyObscured": "a name of the menu, scrolled half under the header",
    "elmPartiallyObscuring": "a name of the menu, half over another that scrolls",
    "imgNode": "text of a drawing, in the colours of the text around it",
    "nonBmp": "a sign of mathematics, in the colour of its formula",
}
# Judges text on a gradient itself: against each colour of the gradient, laid over what lies below.
ON_A_GRADIENT = """window.weakOnGradient = (one) => {
  const read = (text) => [...text.matchAll(/rgba?\\(([^)]*)\\)/g)].map(([, inner]) => inner.split(/[ ,/]+/).map(parseFloat)).map(([r, g, b, a = 1]) => [r, g, b, a]);
  const over = ([r, g, b, a], below) => [r, g, b].map((part, i) => part * a + below[i] * (1 - a));
  const light = (colour) => colour.map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const grounds = (node) => {
    if (!node) return [[255, 255, 255]];
    const { backgroundColor, backgroundImage } = getComputedStyle(node);
    const [own] = read(backgroundColor);
    const below = (own?.[3] === 1 ? [own.slice(0, 3)] : grounds(node.parentElement).map((one) => own ? over(own, one) : one));
    return [...below, ...read(backgroundImage).flatMap((stop) => below.map((one) => over(stop, one)))];
  };
  const { color, fontSize, fontWeight } = getComputedStyle(one), wanted = parseFloat(fontSize) >= (fontWeight >= 700 ? 18.66 : 24) ? 3 : 4.5;
  const ratios = grounds(one).map((ground) => {
    const [dark, bright] = [light(over(read(color)[0], ground)), light(ground)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  });
  return Math.min(...ratios) < wanted ? `${Math.min(...ratios).toFixed(2)} to 1 on a gradient` : '';
};
null"""
# Text of one letter is judged, too; a change of one setting of axe's own check replaces all.
ONE_LETTER = """axe.configure({ checks: [{ id: 'color-contrast', options: { ignoreLength: true,
  ignoreUnicode: true, ignorePseudo: false, boldValue: 700, boldTextPt: 14, largeTextPt: 18,
  contrastRatio: { normal: { expected: 4.5 }, large: { expected: 3 } },
  pseudoSizeThreshold: 0.25, shadowOutlineEmMax: 0.2, textStrokeEmMin: 0.03 } }] });
null"""
# What axe finds, and what it cannot judge and DOUBTS does not explain.
ASK = """async ([where, only, doubts]) => {
  const { violations, incomplete } = await axe.run(where ?? document,
    { elementRef: true, resultTypes: ['violations', 'incomplete'], ...only && { runOnly: only } });
  const unsure = (id, { element, any, all, none }) => id !== 'color-contrast' ? ['axe cannot judge it'] :
    [...any, ...all, ...none].map(({ data }) => data?.messageKey).map((key) => key === 'bgGradient' ? weakOnGradient(element) : key in doubts ? '' : `axe cannot judge it: ${key}`).filter(Boolean);
  const say = (id, { html }, why) => `${id}: ${html.slice(0, 160)} ${why}`;
  return [...violations.flatMap(({ id, nodes }) => nodes.map((node) => say(id, node, node.failureSummary))),
    ...incomplete.flatMap(({ id, nodes }) => nodes.flatMap((node) => unsure(id, node).map((why) => say(id, node, why))))];
}"""


def axe(page, where=None, rules=None):
    """Try all rules of axe on part of a page, or these; in the dark those on colour. Return what it finds."""
    if not page.evaluate("'axe' in window"):
        for script in (AXE_SCRIPT, ON_A_GRADIENT, ONE_LETTER):
            page.evaluate(script)
    found = []
    for scheme in ("light", "dark") if rules is None else ("light",):
        browsers.show(page, color_scheme=scheme)
        page.wait_for_function(  # no panel is on its way; what follows a scroll never ends
            "document.getAnimations().every((moving) => moving.timeline !== document.timeline)"
        )
        only = rules or (BY_COLOUR if scheme == "dark" else None)
        found += [f"{scheme}: {one}" for one in page.evaluate(ASK, [where, only, DOUBTS])]
    return found
