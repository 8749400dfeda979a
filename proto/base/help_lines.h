#pragma once

namespace syncd {

// Lets descriptions and footers of --help stand as they are written: CLI11 2.5 and later would wrap
// them anew, and earlier ones never do. Commands that are added later take it over.
template <class App>
void keep_help_lines(App& app) {
  auto formatter = app.get_formatter();
  if constexpr (requires { formatter->enable_footer_formatting(false); }) {
    formatter->enable_description_formatting(false);
    formatter->enable_footer_formatting(false);
  }
}

}  // namespace syncd
