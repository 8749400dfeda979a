// Compares lists of fields (proto/base/fields.h) with what flatc says of the schema.
#pragma once

#include <flatbuffers/reflection_generated.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "proto/base/table_codec.h"

namespace syncd {

class SchemaCheck {
 public:
  // `file` lies among what flatc made; `space` ends with a dot.
  SchemaCheck(const std::string& file, std::string space) : space_(std::move(space)) {
    std::ifstream stream(std::filesystem::path(SYNCD_SCHEMAS) / file, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(stream), {});
    flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(bytes_.data()),
                                   bytes_.size());
    if (!reflection::VerifySchemaBuffer(verifier)) throw std::runtime_error("no schema: " + file);
    schema_ = reflection::GetSchema(bytes_.data());
  }

  const reflection::Schema& schema() const { return *schema_; }

  // The tables and structs of the schema that no list was compared with.
  std::set<std::string> unseen() const {
    std::set<std::string> names;
    for (const auto* object : *schema_->objects()) names.insert(object->name()->str());
    for (const std::string& name : seen_) names.erase(name);
    return names;
  }

  // T's list, and those of what lies in it.
  template <class T>
  void compare() {
    using List = FieldsOf<T>;
    const std::string name = space_ + std::string(List::name);
    if (!seen_.insert(name).second) return;
    SCOPED_TRACE(name);
    const reflection::Object* object = nullptr;
    for (const auto* other : *schema_->objects()) {
      if (other->name()->str() == name) object = other;
    }
    ASSERT_NE(object, nullptr) << "the schema has no such type";
    EXPECT_EQ(object->is_struct(), table::kIsInline<T>);
    std::vector<const reflection::Field*> fields(object->fields()->size());
    for (const auto* field : *object->fields()) fields.at(field->id()) = field;
    std::vector<std::string> in_schema;
    for (const auto* field : fields) in_schema.push_back(field->name()->str());
    std::vector<std::string> in_list;
    T value{};
    for_each_field(value, [&](auto field, auto&) { in_list.emplace_back(field.name); });
    ASSERT_EQ(in_list, in_schema);
    std::size_t i = 0;
    for_each_field(value, [&](auto field, auto& member) {
      SCOPED_TRACE(std::string(field.name));
      const std::size_t place = table::kIsInline<T>
                                    ? static_cast<std::size_t>(table::place(value, member))
                                    : table::slot(i);
      compare_field<decltype(field)>(*fields[i++], place);
    });
    if (!table::kIsInline<T>) return;
    EXPECT_EQ(static_cast<std::size_t>(object->bytesize()), sizeof(T));
    EXPECT_EQ(static_cast<std::size_t>(object->minalign()), alignof(T));
  }

 private:
  template <class Number>
  static reflection::BaseType number_type() {
    using reflection::BaseType;
    if (std::is_same_v<Number, double>) return BaseType::Double;
    constexpr bool kSigned = std::is_signed_v<Number>;
    switch (sizeof(Number)) {
      case 1:
        return kSigned ? BaseType::Byte : BaseType::UByte;
      case 2:
        return kSigned ? BaseType::Short : BaseType::UShort;
      case 4:
        return kSigned ? BaseType::Int : BaseType::UInt;
      default:
        return kSigned ? BaseType::Long : BaseType::ULong;
    }
  }

  // What `type` should be, if it is the type of a field, or else of a list's items.
  template <class T, class Number>
  void compare_type(const reflection::Type& type, reflection::BaseType base) {
    using reflection::BaseType;
    if constexpr (std::is_same_v<T, bool>) {
      EXPECT_EQ(base, BaseType::Bool);
    } else if constexpr (std::is_same_v<T, std::string>) {
      EXPECT_EQ(base, BaseType::String);
    } else if constexpr (HasFields<T>) {
      ASSERT_EQ(base, BaseType::Obj);
      const auto* object =
          schema_->objects()->Get(static_cast<flatbuffers::uoffset_t>(type.index()));
      EXPECT_EQ(object->name()->str(), space_ + std::string(FieldsOf<T>::name));
      compare<T>();
    } else {
      EXPECT_EQ(base, number_type<Number>());
    }
  }

  template <class F>
  void compare_field(const reflection::Field& field, std::size_t place) {
    using Type = typename F::Type;
    EXPECT_FALSE(field.deprecated());
    EXPECT_EQ(field.offset(), place);
    if constexpr (kIsVector<Type>) {
      using Item = typename ItemOf<Type>::type;
      EXPECT_EQ(field.type()->base_type(), reflection::BaseType::Vector);
      compare_type<Item, Item>(*field.type(), field.type()->element());
    } else if constexpr (table::kIsNumber<Type> || kIsOptional<Type>) {
      compare_type<Type, table::Number<F>>(*field.type(), field.type()->base_type());
      EXPECT_EQ(field.optional(), kIsOptional<Type>);
      if constexpr (!kIsOptional<Type>) {
        EXPECT_EQ(static_cast<std::int64_t>(kAbsent<F::member>), field.default_integer());
        EXPECT_EQ(field.default_real(), 0.0);
      }
    } else {
      compare_type<Type, void>(*field.type(), field.type()->base_type());
    }
  }

  std::string space_;
  std::string bytes_;
  const reflection::Schema* schema_ = nullptr;
  std::set<std::string> seen_;
};

}  // namespace syncd
