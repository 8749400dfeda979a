// The HTML page: see report.h. No thread of its own.
#include "reference_trainer/report/report.h"

#include <string_view>
#include <utility>

// The two files as they are; paths from the build.
#define SYNCD_EMBED(name, file)                                                           \
  asm(".section .rodata\n" #name ":\n.incbin \"" file "\"\n" #name "_end:\n.previous\n"); \
  extern "C" const char name[];                                                           \
  extern "C" const char name##_end[]
SYNCD_EMBED(syncd_report_page, SYNCD_REPORT_PAGE);
SYNCD_EMBED(syncd_chart_js, SYNCD_CHART_JS);

namespace syncd::trainer {

std::string render_html(const ReportContext& context, const ReportDetails& details,
                        const std::vector<RunResult>& results) {
  std::string data = report_data(context, details, results);
  // "</script" and "<!--" would be read by the page; in JSON's strings '<' may be written so.
  for (std::size_t at = 0; (at = data.find('<', at)) != data.npos; at += 6) {
    data.replace(at, 1, "\\u003c");
  }
  std::string page(syncd_report_page, syncd_report_page_end);
  const std::pair<std::string_view, std::string_view> parts[] = {
      {"@DATA@", data}, {"@CHART@", {syncd_chart_js, syncd_chart_js_end}}};
  for (const auto& [place, part] : parts) page.replace(page.find(place), place.size(), part);
  return page;
}

}  // namespace syncd::trainer
