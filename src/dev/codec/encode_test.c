/* Values as the bytes of quantised formats: every byte comes back from its value, and what lies
 * between two values goes to the nearer one. */
#include "testing.h"

#include "dev/codec/codec.h"

static void float8_of_its_own_values(void **state)
{
    (void)state;
    for (int v = 0; v < 256; v++) {
        const float value = float8_e4m3_value((uint8_t)v);
        const int back = float8_e4m3_bits(value);
        if ((v & 0x7f) == 0x7f)
            assert_int_equal(back & 0x7f, 0x7f); /* NaN */
        else
            assert_int_equal(back, v);
    }
}

static void float8_between_two_values(void **state)
{
    (void)state;
    for (int v = 0; v < 0x7e; v++) {
        const float low = float8_e4m3_value((uint8_t)v), high = float8_e4m3_value((uint8_t)(v + 1));
        const float middle = (low + high) / 2;                   /* exact: 4 bits of mantissa */
        assert_int_equal(float8_e4m3_bits(middle), v + (v & 1)); /* the even one */
        assert_int_equal(float8_e4m3_bits(nextafterf(middle, 0)), v);
        assert_int_equal(float8_e4m3_bits(nextafterf(middle, high)), v + 1);
        assert_int_equal(float8_e4m3_bits(-nextafterf(middle, high)), (v + 1) | 0x80);
    }
}

static void float8_beyond_its_values(void **state)
{
    (void)state;
    static const float large[] = {448, 449, 464, 480, 1e30f, INFINITY};
    static const float small[] = {0, 0x1p-149f, 0x1p-126f, 0x1p-10f};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        assert_int_equal(float8_e4m3_bits(large[i]), 0x7e);
        assert_int_equal(float8_e4m3_bits(-large[i]), 0xfe);
    }
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        assert_int_equal(float8_e4m3_bits(small[i]), 0);
        assert_int_equal(float8_e4m3_bits(-small[i]), 0x80);
    }
    assert_int_equal(float8_e4m3_bits(NAN) & 0x7f, 0x7f);
    assert_int_equal(float8_e4m3_bits(float_of(0xff800001u)), 0xff); /* NaN keeps its sign */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float8_of_its_own_values),
        cmocka_unit_test(float8_between_two_values),
        cmocka_unit_test(float8_beyond_its_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
