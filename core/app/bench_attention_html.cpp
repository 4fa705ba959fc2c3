#include <fmt/format.h>

#include <algorithm>

#include "app/bench_attention.h"

namespace tessera::app {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Attention variants</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h2{font-size:1rem;margin:1.4rem 0 .3rem}
.line{display:grid;grid-template-columns:13rem 1fr 15rem;gap:.6rem;align-items:center}
.name,.figure{font-variant-numeric:tabular-nums;white-space:nowrap}
.bar{display:block;height:.9rem;border-radius:2px;background:#4a7bb5}
.base .bar{background:#9aa5b1}.replay .bar{background:#4f9d69}
@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}}
</style>
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string section_of(const AttentionBenchRow& row) {
  std::string html =
      fmt::format("<h2>{} <small>{} rows, {} (row, key) pairs</small></h2>\n", escaped(row.shape), row.rows, row.pairs);
  if (!row.skipped.empty()) return html + fmt::format("<p>skipped: {}</p>\n", escaped(row.skipped));
  double longest = 0;
  for (const AttentionTiming& timing : row.timings) longest = std::max(longest, timing.microseconds.median);
  for (const AttentionTiming& t : row.timings) {
    const bool base = t.variant == row.timings.front().variant;
    const std::string roof = t.of_roof > 0 ? fmt::format(", {:.0f} % of roof", t.of_roof * 100) : "";
    html += fmt::format(
        "<div class=\"line{}{}\"><span class=\"name\">{}{}</span><span><span class=\"bar\" style=\"width:{:.1f}%\" "
        "title=\"{:.2f} to {:.2f} us\"></span></span><span class=\"figure\">{:.1f} us, {:.2f}x{}</span></div>\n",
        base ? " base" : "", t.replayed ? " replay" : "", escaped(t.variant), t.replayed ? " (replay)" : "",
        100 * t.microseconds.median / longest, t.microseconds.low, t.microseconds.high, t.microseconds.median,
        t.ratio.median, roof);
  }
  return html;
}

}  // namespace

std::string html_of(const AttentionBench& bench) {
  const AttentionGeometry& g = bench.geometry;
  std::string html = kHead;
  html += fmt::format(
      "<h1>{} on {}</h1>\n<p>One layer, {} query and {} KV heads of {}, f32. Bars are medians, shorter "
      "is faster; the factor is the baseline's time over the variant's, paired by round.</p>\n",
      escaped(bench.plugin), escaped(bench.device), g.q_heads, g.kv_heads, g.head_dim);
  if (bench.roof.flops > 0) html += fmt::format("<p>Measured in the same run: {}.</p>\n", text_of(bench.roof));
  for (const AttentionBenchRow& row : bench.rows) html += section_of(row);
  return html + "</html>";
}

}  // namespace tessera::app
