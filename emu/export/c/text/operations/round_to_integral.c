    const struct number value = $unpack_a;
    bool moved;
    const struct exact x = integral_of(&value$rbits, &moved);
    if (moved)
        raised |= INEXACT;
