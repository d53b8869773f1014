    const struct number value = $unpack_a;
    const struct exact x = exact_of(&value);
