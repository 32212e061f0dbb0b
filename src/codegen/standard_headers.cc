#include <array>

#include "codegen/embedded_headers.h"

namespace megartp::codegen {
namespace {

// The widths are those of 64-bit Linux, which is where the structs that are shared with the host come from.
constexpr std::string_view kCstdint = R"text(#pragma once
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;
using intptr_t = long;
using uintptr_t = unsigned long;
namespace std {
using ::int8_t;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::uint8_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::intptr_t;
using ::uintptr_t;
}
)text";

constexpr std::string_view kCstddef = R"text(#pragma once
namespace std {
using size_t = decltype(sizeof(0));
using ptrdiff_t = decltype(static_cast<char*>(nullptr) - static_cast<char*>(nullptr));
using nullptr_t = decltype(nullptr);
enum class byte : unsigned char {};
}
using std::size_t;
using std::ptrdiff_t;
)text";

constexpr std::string_view kClimits = R"text(#pragma once
#define CHAR_BIT 8
#define INT_MAX 0x7fffffff
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 0xffffffffU
#define LONG_MAX 0x7fffffffffffffffL
#define ULONG_MAX 0xffffffffffffffffUL
)text";

constexpr std::string_view kTypeTraits = R"text(#pragma once
namespace std {
template <class T, T v> struct integral_constant { static constexpr T value = v; };
using true_type = integral_constant<bool, true>;
using false_type = integral_constant<bool, false>;
template <class A, class B> inline constexpr bool is_same_v = false;
template <class A> inline constexpr bool is_same_v<A, A> = true;
template <class A, class B> struct is_same : integral_constant<bool, is_same_v<A, B>> {};
template <bool c, class A, class B> struct conditional { using type = A; };
template <class A, class B> struct conditional<false, A, B> { using type = B; };
template <bool c, class A, class B> using conditional_t = typename conditional<c, A, B>::type;
template <bool c, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool c, class T = void> using enable_if_t = typename enable_if<c, T>::type;
template <class T> struct remove_reference { using type = T; };
template <class T> struct remove_reference<T&> { using type = T; };
template <class T> struct remove_reference<T&&> { using type = T; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_cv { using type = T; };
template <class T> struct remove_cv<const T> { using type = T; };
template <class T> struct remove_cv<volatile T> { using type = T; };
template <class T> struct remove_cv<const volatile T> { using type = T; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_cvref_t = remove_cv_t<remove_reference_t<T>>;
template <class T> inline constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);
template <class T> inline constexpr bool is_standard_layout_v = __is_standard_layout(T);
}
)text";

// std::move and std::forward are built into NVRTC.
constexpr std::string_view kUtility = "#pragma once\n";

constexpr std::array<SourceHeader, 5> kStandard{{{"cstdint", kCstdint},
                                                 {"cstddef", kCstddef},
                                                 {"climits", kClimits},
                                                 {"type_traits", kTypeTraits},
                                                 {"utility", kUtility}}};

}  // namespace

std::span<const SourceHeader> standard_headers() { return kStandard; }

}  // namespace megartp::codegen
