// The style sheet of the HTML report, and the patterns that its fills name. Light and dark by the
// reader's preference; the two sets of colours keep their contrast on their background, and series
// and fills differ in more than colour (dashes and markers; stripes), for readers who see colours
// differently.
#pragma once

#include <string_view>

namespace syncd::trainer {

inline constexpr std::string_view kReportStyle = R"css(
:root{color-scheme:light dark;
--page:#fff;--card:#f7f8fa;--text:#1b1f24;--dim:#57606a;--rule:#d5dae0;--grid:#e4e8ec;--mark:#a40e26;
--c0:#0072b2;--c1:#c75000;--c2:#007d5a;--c3:#a8487f;--c4:#4d4d4d;--c5:#8f6400;--c6:#3a8fc7;--c7:#6a3d9a;
--computing:#4a8fd0;--waiting:#f2c879;--waiting-line:#a96f00;--wasted:#e5484d;--wasted-line:#7d0b14;
--exchanging:#8e6fc4;--pushing:#12715b;--idle:#eceff2;--idle-line:#c3c9d0}
@media (prefers-color-scheme:dark){:root{
--page:#12161b;--card:#1a2027;--text:#e6eaee;--dim:#9da7b1;--rule:#39424c;--grid:#2a323a;--mark:#ff8b94;
--c0:#5ab0f0;--c1:#ff8f45;--c2:#35cfa2;--c3:#ea94c6;--c4:#d9d9d9;--c5:#e8bd3c;--c6:#a5d8ff;--c7:#b99cf2;
--computing:#3d78b5;--waiting:#8a6420;--waiting-line:#f0c674;--wasted:#b5333a;--wasted-line:#ffb3b7;
--exchanging:#9d83d6;--pushing:#5fe0bd;--idle:#232a32;--idle-line:#414b56}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0 auto;max-width:1320px;padding:16px;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
h1{font-size:1.6rem;line-height:1.2;margin:.2em 0 .3em}
h2{font-size:1.2rem;margin:2em 0 .4em;padding-top:.6em;border-top:1px solid var(--rule)}
p{margin:.4em 0;max-width:75ch}
h1,h2,p,dd,li,figcaption,summary{overflow-wrap:anywhere}
.dim,figcaption small{color:var(--dim)}
nav{font-size:.9rem;margin:.8em 0}
nav a{color:inherit;margin-right:1em;white-space:nowrap}
.scroll{overflow-x:auto;margin:.8em 0}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.35em .7em;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th{font-weight:600;vertical-align:bottom}
thead th{color:var(--dim);white-space:normal;min-width:4.5em}
th:first-child{text-align:left;position:sticky;left:0;background:var(--page);white-space:normal;
min-width:7em;max-width:17em}
.problems{border-left:4px solid var(--mark);padding:.1em 0 .1em .9em;margin:1em 0}
.problems li{margin:.2em 0}.problems ul{margin:.2em 0;padding-left:1.2em}
.legend{display:flex;flex-wrap:wrap;gap:.25em 1.3em;padding:0;margin:.6em 0;list-style:none;font-size:.9rem}
.sample{display:inline-block;vertical-align:middle;height:.95em;margin-right:.45em;flex:none}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));gap:16px}
figure{margin:0;padding:12px 10px 8px;background:var(--card);border-radius:8px;min-width:0}
figcaption{font-weight:600;font-size:.95rem;margin:0 0 .3em .2em}
figcaption small{display:block;font-weight:400;font-size:.85rem}
.chart{display:block;width:100%;max-width:640px;height:auto}
.chart text{fill:var(--text);font-size:10px}
.chart .tick,.chart .label{fill:var(--dim)}
.chart .middle{text-anchor:middle}.chart .end{text-anchor:end}
.chart .inside{fill:#fff;font-size:9px;pointer-events:none;paint-order:stroke;stroke:rgba(0,0,0,.5);stroke-width:2px}
.axis,.line,.target,.barrier,.grid-line{fill:none}
.axis{stroke:var(--dim);stroke-width:1}
.grid-line{stroke:var(--grid);stroke-width:1}
.line{stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.marker{stroke:var(--card);stroke-width:.7}.marker.open{fill:none;stroke-width:1.8}
.target{stroke:var(--mark);stroke-width:1.3;stroke-dasharray:5 3}
.chart .target-text{fill:var(--mark);paint-order:stroke;stroke:var(--card);stroke-width:3px}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}
.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}
.marker.s0{fill:var(--c0)}.marker.s1{fill:var(--c1)}.marker.s2{fill:var(--c2)}.marker.s3{fill:var(--c3)}
.marker.s4{fill:var(--c4)}.marker.s5{fill:var(--c5)}.marker.s6{fill:var(--c6)}.marker.s7{fill:var(--c7)}
.marker:not(.open){stroke:var(--card)}.marker.open{fill:none}
.bar{fill:var(--c0)}
.computing{fill:var(--computing)}.exchanging{fill:var(--exchanging)}.pushing{fill:var(--pushing)}
.waiting{fill:url(#waiting)}.wasted{fill:url(#wasted)}.idle{fill:var(--idle);stroke:var(--idle-line);stroke-width:.6}
.f-waiting{fill:var(--waiting)}.l-waiting{stroke:var(--waiting-line);stroke-width:1}
.f-wasted{fill:var(--wasted)}.l-wasted{stroke:var(--wasted-line);stroke-width:1.2}
.barrier{stroke:var(--text);stroke-width:1.2;stroke-dasharray:2 2}
.skip{fill:var(--mark);stroke:var(--card);stroke-width:.7}
.patterns{position:absolute;width:0;height:0}
dl{display:grid;grid-template-columns:minmax(7em,max-content) 1fr;gap:.2em 1em;margin:.4em 0;font-size:.92rem}
dt{color:var(--dim)}dd{margin:0}
h3{font-size:1rem;margin:0 0 .4em}
pre{background:var(--card);padding:.7em;border-radius:6px;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem}
code{font-size:.95em}
details{margin:.6em 0}summary{cursor:pointer;color:var(--dim)}
footer{margin-top:2.5em;font-size:.85rem;color:var(--dim)}
@media (max-width:560px){body{padding:10px}
th:first-child{min-width:9.8em}th:first-child .sample{display:block}
figure{padding:10px 4px 6px}
.chart text{font-size:13px}.chart .inside{font-size:11px}
dl{grid-template-columns:1fr}dd{margin:0 0 .4em}}
@media print{figure,tr{break-inside:avoid}nav{display:none}}
)css";

// Stripes of fills, so that waiting and wasted time can be told from computing without colours.
inline constexpr std::string_view kReportPatterns =
    R"svg(<svg class="patterns" aria-hidden="true"><defs>
<pattern id="waiting" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="5" height="5" class="f-waiting"/><path d="M0 0V5" class="l-waiting"/></pattern>
<pattern id="wasted" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">
<rect width="4" height="4" class="f-wasted"/><path d="M0 0V4M0 0H4" class="l-wasted"/></pattern>
</defs></svg>)svg";

}  // namespace syncd::trainer
