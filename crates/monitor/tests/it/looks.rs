//! What every page must keep: readable colors, no overflow, no broken number, every picture drawn.

use serde_json::json;

use crate::browser::{Browser, Scheme};

/// Texts whose contrast with the color behind them is below 4.5, the limit of WCAG 2 for small text.
const PALE: &str = r"(() => {
  const parts = (color) => { const n = color.match(/[\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
  const light = (color) => color.slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const over = (top, under) => [0, 1, 2].map((at) => top[at] * top[3] + under[at] * (1 - top[3]));
  const behind = (part) => part ? over(parts(getComputedStyle(part).backgroundColor), behind(part.parentElement)) : [255, 255, 255];
  const pale = [];
  for (const part of document.body.querySelectorAll('*')) {
    const own = [...part.childNodes].filter((node) => node.nodeType === 3 && node.data.trim());
    if (!own.length || !part.checkVisibility() || ['SCRIPT', 'STYLE'].includes(part.tagName)) continue;
    const under = behind(part), a = light(over(parts(getComputedStyle(part).color), under)), b = light(under);
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) pale.push(contrast.toFixed(2) + ' ' + own[0].data.trim());
  }
  return pale;
})()";

/// Elements that are cut off or reach out of the window, apart from those that scroll by themselves.
const OUTSIDE: &str = r"(() => {
  const room = document.documentElement.clientWidth;
  const scrolls = (part) => part && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(part).overflowX) || scrolls(part.parentElement));
  const far = [...document.body.querySelectorAll('*')].filter((part) => part.checkVisibility() && !part.closest('svg')
    && part.getBoundingClientRect().right > room + 1 && !scrolls(part.parentElement)).map((part) => part.outerHTML.slice(0, 200));
  return document.documentElement.scrollWidth > room ? ['the page scrolls sideways', ...far] : far;
})()";

/// Words of a program that are no words for people.
const BROKEN: &str =
    r"[...document.body.innerText.matchAll(/.*(NaN|undefined|null|Infinity|\[object).*/g)].map((found) => found[0])";

/// Pictures that are not drawn.
const NOT_DRAWN: &str =
    r"[...document.images].filter((image) => !(image.complete && image.naturalWidth > 0)).map((image) => image.alt)";

/// Opens the page in both schemes, and on screens of a desk and of a telephone, and checks its looks. `ready` is an
/// expression that is true when the page shows its numbers.
pub(crate) fn check(browser: &mut Browser, url: &str, ready: &str) {
    let mut backs = Vec::new();
    for scheme in [Scheme::Light, Scheme::Dark] {
        for width in [1280, 390] {
            browser.open(url, width, scheme);
            browser.wait_until(ready);
            assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
            for wrong in [PALE, OUTSIDE, BROKEN, NOT_DRAWN] {
                assert_eq!(browser.value(wrong), json!([]), "{scheme:?}, {width} wide");
            }
        }
        backs.push(browser.text("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(backs[0], backs[1], "the page follows the scheme of the system");
}
