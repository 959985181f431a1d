// SPDX-License-Identifier: Apache-2.0
// The luminance of the page's background, and all that has too little contrast (WCAG 2.2) to what it stands on.
((least, graphics) => {
    const rgb = (text) => text.match(/[\d.]+/g).map(Number);
    const channel = (c) => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
    const luminance = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
    const contrast = (a, b) => {
        const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
        return (high + .05) / (low + .05);
    };
    const behind = (e) => {
        for (; e; e = e.parentElement) {
            const c = rgb(getComputedStyle(e).backgroundColor);
            if (c.length === 3 || c[3] === 1) return c;
        }
        return [255, 255, 255];
    };
    const page = behind(document.body), bad = [];
    let checked = 0;
    const check = (e, paint, least, ground) => {
        const is = contrast(rgb(paint), ground);
        checked++;
        if (is < least) bad.push(`${is.toFixed(2)}: ${e.outerHTML.slice(0, 200)}`);
    };
    for (const e of document.body.querySelectorAll(":not(svg *, script)")) {
        const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
        if (says && e.checkVisibility()) check(e, getComputedStyle(e).color, least, behind(e));
    }
    for (const e of document.querySelectorAll("figure svg text")) {
        const segments = [...e.parentElement.querySelectorAll("rect")];
        const [x, y] = ["x", "y"].map((name) => Number(e.getAttribute(name)));
        const under = segments.find(({ x: { baseVal: l }, y: { baseVal: t }, width: w, height: h }) =>
            l.value <= x && x <= l.value + w.baseVal.value && t.value <= y && y <= t.value + h.baseVal.value);
        check(e, getComputedStyle(e).fill, least, under ? rgb(getComputedStyle(under).fill) : page);
    }
    for (const e of document.querySelectorAll('figure svg :is([stroke^="#01"], [fill^="#04"], [fill^="#05"])')) {
        const style = getComputedStyle(e);
        check(e, style.fill === "none" ? style.stroke : style.fill, graphics, page);
    }
    return { ground: luminance(page), checked, bad };
})
