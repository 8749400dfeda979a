// TOML to entries; the one file that sees toml++. Any thread.
#include "daemon/edge/config/toml_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "proto/base/file.h"

namespace syncd::config {
namespace {

std::string place(const std::string& path, const toml::source_region& source) {
  return fmt::format("{}:{}", path, source.begin.line);
}

std::string as_written(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& value) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (toml::is_table<T>) {
      out << "{...}";
    } else {
      out << value;
    }
  });
  return out.str();
}

RawValue raw(const toml::node& node, const std::string& path) {
  RawValue value;
  value.typed = true;
  value.where = place(path, node.source());
  value.line = static_cast<unsigned>(node.source().begin.line);
  value.text = as_written(node);
  if (const auto* text = node.as_string()) {
    value.kind = RawValue::Kind::kText;
    value.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    value.kind = RawValue::Kind::kInteger;
    value.integer = integer->get();
  } else if (const auto* boolean = node.as_boolean()) {
    value.kind = RawValue::Kind::kBoolean;
    value.boolean = boolean->get();
  } else {
    const auto* array = node.as_array();
    const bool texts = array != nullptr && (array->empty() || array->is_homogeneous<std::string>());
    value.kind = texts ? RawValue::Kind::kList : RawValue::Kind::kOther;
    for (std::size_t i = 0; texts && i < array->size(); ++i) {
      value.list.push_back(array->get_as<std::string>(i)->get());
    }
  }
  return value;
}

void read_table(const toml::table& table, const std::string& prefix, const std::string& path,
                std::vector<Entry>& entries) {
  for (const auto& [key, node] : table) {
    entries.push_back({prefix + std::string(key.str()), raw(node, path)});
  }
}

bool read_jobs(const toml::node& node, const std::string& path, TomlFile& file,
               std::string& error) {
  const toml::array* array = node.as_array();
  if (array == nullptr || !array->is_array_of_tables()) {
    error = place(path, node.source()) + ": job is a list of tables: begin each with [[job]]";
    return false;
  }
  for (const toml::node& item : *array) {
    TomlFile::Table job;
    job.where = place(path, item.source());
    read_table(*item.as_table(), "", path, job.entries);
    file.jobs.push_back(std::move(job));
  }
  return true;
}

}  // namespace

bool read_toml_file(const std::string& path, TomlFile& file, std::string& error) {
  std::string text;
  if (!syncd::read_file(path, text)) {
    error = fmt::format("cannot read the configuration file {}: {}", path, std::strerror(errno));
    return false;
  }
  return read_toml_text(text, path, file, error);
}

bool read_toml_text(const std::string& text, const std::string& path, TomlFile& file,
                    std::string& error) {
  try {
    const toml::table root = toml::parse(text, path);
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      if (name == "job") {
        if (!read_jobs(node, path, file, error)) return false;
      } else if (const toml::table* section = node.as_table()) {
        file.sections.emplace_back(name, place(path, section->source()));
        read_table(*section, name + ".", path, file.entries);
      } else {
        file.entries.push_back({name, raw(node, path)});
      }
    }
    // toml++ sorts by key; mistakes are better read in the order of the file.
    std::stable_sort(file.entries.begin(), file.entries.end(),
                     [](const Entry& a, const Entry& b) { return a.value.line < b.value.line; });
  } catch (const toml::parse_error& wrong) {
    error = fmt::format("{}: not valid TOML: {}", place(path, wrong.source()), wrong.description());
    return false;
  }
  return true;
}

}  // namespace syncd::config
