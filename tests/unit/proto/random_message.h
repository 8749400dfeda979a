// Messages of every type with random contents in every field. What a struct consists of is found at
// compile time, so that a field that is added later is filled without a change here.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "proto/wire/wire.h"

namespace syncd::wire {

class RandomValue;

namespace detail {
// Stands for a field of whatever type, to count the fields of an aggregate.
struct Anything {
  template <class T>
  operator T() const;
};
template <std::size_t>
using AnythingAt = Anything;

template <class T, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires {
    T{AnythingAt<I>{}...};
  };
}
template <class T, std::size_t N = 24>
constexpr std::size_t field_count() {
  if constexpr (takes<T>(std::make_index_sequence<N>{})) {
    return N;
  } else {
    return field_count<T, N - 1>();
  }
}
template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
}  // namespace detail

// Converts to a random value of any type that messages are made of. Small numbers, the ends of each
// type's range and everything between come equally often; texts hold any byte.
class RandomValue {
 public:
  explicit RandomValue(std::mt19937_64& random) : random_(random) {}

  template <class T>
  operator T() const {
    return make<T>();
  }

  template <class T>
  T make() const {
    if constexpr (std::is_same_v<T, bool>) {
      return random_() % 2 == 0;
    } else if constexpr (std::is_enum_v<T>) {
      return static_cast<T>(make<std::underlying_type_t<T>>());
    } else if constexpr (std::is_integral_v<T>) {
      return number<T>();
    } else if constexpr (std::is_same_v<T, double>) {
      return static_cast<double>(make<std::int64_t>()) / 7.0;
    } else if constexpr (std::is_same_v<T, std::string>) {
      std::string out(random_() % 4 == 0 ? 0 : random_() % 40, '\0');
      for (char& c : out) c = static_cast<char>(random_());
      return out;
    } else if constexpr (detail::IsVector<T>::value) {
      T out;
      for (std::size_t left = random_() % 5; left > 0; --left) {
        out.push_back(make<typename T::value_type>());
      }
      return out;
    } else if constexpr (std::is_same_v<T, Push>) {
      // optional takes part in too many conversions to be found out about.
      Push push{make<WorkerRef>(), make<std::int64_t>(), std::nullopt, make<std::uint64_t>(),
                make<std::uint64_t>()};
      if (make<bool>()) push.loss = make<double>();
      return push;
    } else {
      return aggregate<T>(std::make_index_sequence<detail::field_count<T>()>{});
    }
  }

 private:
  template <class T>
  T number() const {
    using Limits = std::numeric_limits<T>;
    switch (random_() % 4) {
      case 0:
        return static_cast<T>(random_() % 3);
      case 1:
        return make<bool>() ? Limits::max() : Limits::min();
      default:
        return static_cast<T>(random_());
    }
  }
  // The index sequence makes as many copies of *this as there are fields; braces keep their order.
  template <class T, std::size_t... I>
  T aggregate(std::index_sequence<I...>) const {
    return T{((void)I, *this)...};
  }

  std::mt19937_64& random_;
};

// One message of the alternative at `index` of Body (not 0, which is Unknown).
template <std::size_t I = 1>
Message random_message(std::size_t index, std::mt19937_64& random) {
  if constexpr (I < std::variant_size_v<Body>) {
    if (index == I) {
      const RandomValue value(random);
      return {random(),
              Body{std::in_place_index<I>, value.make<std::variant_alternative_t<I, Body>>()}};
    }
    return random_message<I + 1>(index, random);
  } else {
    return {};
  }
}

}  // namespace syncd::wire
